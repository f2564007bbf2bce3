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
	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism/internal/jobservices"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism/internal/urns"
)

// splitAsks decides for one bundle whether a split is worth asking for.
//
// A source that has not given anything yet is most often still asking its
// broker or its directory. Split now, it has nothing to keep: all goes to the
// residual, which begins the same wait from the start, and is split again.
type splitAsks struct {
	unbounded bool  // The bundle reads an unbounded source.
	seen      bool  // There was a report before.
	index     int64 // Of the element that is being read.
	count     int64 // What all PCollections had when that one was first seen.
}

func newSplitAsks(s *stage, comps *pipepb.Components) *splitAsks {
	return &splitAsks{unbounded: readsUnbounded(s, comps)}
}

// readsUnbounded tells whether a stage begins with a splittable DoFn whose
// outputs have no end.
func readsUnbounded(s *stage, comps *pipepb.Components) bool {
	for _, tid := range s.transforms {
		t := comps.GetTransforms()[tid]
		if t.GetSpec().GetUrn() != urns.TransformProcessSizedElements {
			continue
		}
		for _, output := range t.GetOutputs() {
			pcol := comps.GetPcollections()[output]
			if pcol.GetIsBounded() == pipepb.IsBounded_UNBOUNDED {
				return true
			}
		}
	}
	return false
}

// useful takes each progress report of the bundle, and tells whether a split
// now can help.
//
// It cannot where the SDK says that it does not know how far it is. Of an
// unbounded source it cannot before the element that is being read has given
// something, unless other elements wait behind that one.
func (a *splitAsks) useful(report map[string]int64, elements int) bool {
	index, count := report["index"], report["totalCount"]
	if !a.seen || index != a.index {
		a.seen, a.index, a.count = true, index, count
		if index == 0 {
			// The element itself counts; what is more, came out of it. A first
			// report may know of neither.
			a.count = 1
		}
	}
	if report[jobservices.UnknownProgress] > 0 {
		return false
	}
	if !a.unbounded || index+1 < int64(elements) {
		return true
	}
	return count > a.count
}
