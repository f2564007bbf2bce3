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

package jobservices

import (
	"bytes"
	"math"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/coder"
	fnpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/fnexecution_v1"
	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
)

func works(values ...float64) []byte {
	var buf bytes.Buffer
	coder.EncodeInt32(int32(len(values)), &buf)
	for _, v := range values {
		coder.EncodeDouble(v, &buf)
	}
	return buf.Bytes()
}

func TestContributeTentativeMetrics_UnknownProgress(t *testing.T) {
	m := &metricsStore{}
	labels := map[string]string{"PTRANSFORM": "read"}
	m.AddShortIDs(&fnpb.MonitoringInfosMetadataResponse{
		MonitoringInfo: map[string]*pipepb.MonitoringInfo{
			"c": {Urn: "beam:metric:ptransform_progress:completed:v1", Type: "beam:metrics:progress:v1", Labels: labels},
			"r": {Urn: "beam:metric:ptransform_progress:remaining:v1", Type: "beam:metrics:progress:v1", Labels: labels},
		},
	})
	tests := []struct {
		name                 string
		completed, remaining []byte
		unknown              bool
	}{
		{"known", works(3), works(4), false},
		{"none", works(), works(), false},
		{"endless", works(3), works(math.Inf(1)), false},
		{"remaining", works(3), works(math.NaN()), true},
		{"completed", works(math.NaN()), works(1), true},
		{"second of two", works(1, math.NaN()), works(1, 1), true},
	}
	for _, test := range tests {
		report, missing := m.ContributeTentativeMetrics(&fnpb.ProcessBundleProgressResponse{
			MonitoringData: map[string][]byte{"c": test.completed, "r": test.remaining, "x": works(math.NaN())},
		})
		if got := report[UnknownProgress] > 0; got != test.unknown {
			t.Errorf("%v: unknown = %v, want %v", test.name, got, test.unknown)
		}
		if len(missing) != 1 || missing[0] != "x" {
			t.Errorf("%v: missing = %v, want [x]", test.name, missing)
		}
	}
}
