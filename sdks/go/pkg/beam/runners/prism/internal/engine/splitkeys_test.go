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

package engine

import (
	"fmt"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/window"
)

func TestSplitBundle_KeepsKeys(t *testing.T) {
	for split := range 5 {
		em := NewElementManager(Config{})
		em.AddStage("state", []string{"in"}, nil, nil)
		em.StageStateful("state", nil)
		ss := em.stages["state"]
		var all []element
		for i, value := range []string{"a1", "a2", "b1", "b2"} {
			all = append(all, element{
				window: window.GlobalWindow{}, timestamp: mtime.Time(i), sequence: i,
				elmBytes: []byte(value), keyBytes: []byte(value[:1]),
			})
		}
		rb := RunBundle{StageID: "state", BundleID: "first"}
		ss.makeInProgressBundle(func() string { return "first" }, all, 0, set[string]{"a": {}, "b": {}}, nil, nil)
		ss.splitBundle(rb, split, em)
		for i, key := range []string{"a", "b"} {
			want := split > 2*i
			if got := ss.inprogressKeys.present(key); got != want {
				t.Errorf("split at %v: key %v in progress: %v, want %v", split, key, got, want)
			}
			if got := ss.inprogressKeysByBundle["first"].present(key); got != want {
				t.Errorf("split at %v: key %v of the bundle: %v, want %v", split, key, got, want)
			}
		}
		ss.updateUpstreamWatermark("in", mtime.MaxTimestamp)
		_, ok, _, _ := ss.startEventTimeBundle(mtime.MaxTimestamp, func() string { return "second" })
		var second []string
		for _, e := range ss.inprogress["second"].es {
			second = append(second, string(e.elmBytes))
		}
		want := [][]string{{"a1", "a2", "b1", "b2"}, {"b1", "b2"}, {"b1", "b2"}, nil, nil}[split]
		got := map[string]bool{}
		for _, value := range second {
			got[value] = true
		}
		if ok != (want != nil) || len(got) != len(want) {
			t.Errorf("split at %v: a second bundle has %v, want %v", split, second, want)
		}
		for _, value := range want {
			if !got[value] {
				t.Errorf("split at %v: a second bundle has %v, want %v", split, fmt.Sprint(second), want)
			}
		}
	}
}
