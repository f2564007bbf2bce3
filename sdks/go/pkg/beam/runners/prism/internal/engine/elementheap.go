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
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
)

// push adds an element to the heap, as heap.Push does, but without a copy of it
// in memory of its own.
func (h *elementHeap) push(e element) {
	*h = append(*h, e)
	es := *h
	i := len(es) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !less(&e, &es[parent]) {
			break
		}
		es[i] = es[parent]
		i = parent
	}
	es[i] = e
}

// pop takes the first element off the heap, as heap.Pop does.
func (h *elementHeap) pop() element {
	es := *h
	first := es[0]
	n := len(es) - 1
	last := es[n]
	// Nothing keeps its bytes alive any more.
	es[n] = element{}
	es = es[:n]
	*h = es
	if n == 0 {
		return first
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if right := child + 1; right < n && less(&es[right], &es[child]) {
			child = right
		}
		if !less(&es[child], &last) {
			break
		}
		es[i] = es[child]
		i = child
	}
	es[i] = last
	return first
}

// less is the order of the heap: by time, data before timers, and then as they
// came.
func less(a, b *element) bool {
	if a.timestamp != b.timestamp {
		return a.timestamp < b.timestamp
	}
	if a.IsTimer() != b.IsTimer() {
		return b.IsTimer()
	}
	return a.sequence < b.sequence
}

// inTime returns the elements whose windows had not expired at the output
// watermark. As long as none is late, these are the ones passed in.
func (ws WinStrat) inTime(es []element, output mtime.Time) []element {
	for i := range es {
		if ws.EarliestCompletion(es[i].window) >= output {
			continue
		}
		kept := append(make([]element, 0, len(es)-1), es[:i]...)
		for _, e := range es[i+1:] {
			if ws.EarliestCompletion(e.window) >= output {
				kept = append(kept, e)
			}
		}
		return kept
	}
	return es
}
