// Licensed to the Apache Software Foundation (ASF) under one or more
// contributor license agreements.  See the NOTICE file distributed with
// this work for additional information regarding copyright ownership.
// The ASF licenses this file to You under the Apache License, Version 2.0
// (the "License"); you may not use this file except in compliance with
// the License.  You may obtain a copy of the License at
//
//    http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package internal

import (
	"testing"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism/internal/jobservices"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism/internal/urns"
)

func TestSplitAsks_Useful(t *testing.T) {
	type report struct {
		index, count, unknown int64
		want                  bool
	}
	tests := []struct {
		name      string
		unbounded bool
		elements  int
		reports   []report
	}{
		{"bounded", false, 1, []report{{0, 0, 0, true}, {0, 1, 0, true}}},
		{"unbounded, nothing yet", true, 1, []report{{0, 0, 0, false}, {0, 1, 0, false}, {0, 1, 0, false}}},
		{"unbounded, has given", true, 1, []report{{0, 1, 0, false}, {0, 2, 0, true}, {0, 2, 0, true}}},
		{"unbounded, has given before the first report", true, 1, []report{{0, 7, 0, true}}},
		{"unbounded, others wait", true, 3, []report{{0, 1, 0, true}, {1, 9, 0, true}, {2, 9, 0, false}, {2, 10, 0, true}}},
		{"progress unknown", false, 5, []report{{0, 3, 1, false}, {1, 3, 0, true}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			asks := &splitAsks{unbounded: test.unbounded}
			for i, r := range test.reports {
				got := asks.useful(map[string]int64{
					"index": r.index, "totalCount": r.count, jobservices.UnknownProgress: r.unknown,
				}, test.elements)
				if got != r.want {
					t.Errorf("report %v: useful = %v, want %v", i+1, got, r.want)
				}
			}
		})
	}
}

func TestReadsUnbounded(t *testing.T) {
	comps := &pipepb.Components{
		Transforms: map[string]*pipepb.PTransform{
			"unbounded": {
				Spec:    &pipepb.FunctionSpec{Urn: urns.TransformProcessSizedElements},
				Outputs: map[string]string{"out": "stream"},
			},
			"bounded": {
				Spec:    &pipepb.FunctionSpec{Urn: urns.TransformProcessSizedElements},
				Outputs: map[string]string{"out": "file"},
			},
			"map": {
				Spec:    &pipepb.FunctionSpec{Urn: urns.TransformParDo},
				Outputs: map[string]string{"out": "stream"},
			},
		},
		Pcollections: map[string]*pipepb.PCollection{
			"stream": {IsBounded: pipepb.IsBounded_UNBOUNDED},
			"file":   {IsBounded: pipepb.IsBounded_BOUNDED},
		},
	}
	for transform, want := range map[string]bool{"unbounded": true, "bounded": false, "map": false} {
		if got := readsUnbounded(&stage{transforms: []string{transform}}, comps); got != want {
			t.Errorf("readsUnbounded(%v) = %v, want %v", transform, got, want)
		}
	}
}
