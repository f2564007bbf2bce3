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
	"container/heap"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/window"
)

// TestHeapIsAsContainerHeapMakesIt compares all of the heap after each step:
// the elements of a bundle come in its order, not only in that of their times.
func TestHeapIsAsContainerHeapMakesIt(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		var got, want elementHeap
		for step := range 200 {
			if len(want) == 0 || r.IntN(5) > 1 {
				e := element{timestamp: mtime.Time(r.IntN(1 + int(seed)%7)), sequence: r.IntN(1 + int(seed)%40), keyBytes: []byte{byte(step)}}
				if r.IntN(3) > 0 {
					e.elmBytes = []byte{byte(step)}
				}
				got.push(e)
				heap.Push(&want, e)
			} else if d := diffElements([]element{got.pop()}, []element{heap.Pop(&want).(element)}); d != "" {
				t.Fatalf("seed %v, step %v: another element came off: (-want +got)\n%v", seed, step, d)
			}
			if d := diffElements(got, want); d != "" {
				t.Fatalf("seed %v, step %v: other heap: (-want +got)\n%v", seed, step, d)
			}
		}
	}
}

func TestHeapLetsGoOfWhatIsTaken(t *testing.T) {
	var h elementHeap
	for i := range 8 {
		h.push(element{timestamp: mtime.Time(i), elmBytes: []byte{1}})
	}
	room := h[:8]
	for len(h) > 0 {
		h.pop()
	}
	for i, e := range room {
		if e.elmBytes != nil {
			t.Errorf("the heap still has the bytes of element %v", i)
		}
	}
}

func TestPushingAllocatesNothing(t *testing.T) {
	em := NewElementManager(Config{})
	em.AddStage("stage", []string{"in"}, nil, nil)
	em.StageStateful("stage", nil)
	es := make([]element, 1000)
	for i := range es {
		es[i] = element{window: window.GlobalWindow{}, keyBytes: []byte{1, 2}, elmBytes: []byte{1, 2}, sequence: i}
	}
	ss := em.stages["stage"]
	allocations := testing.AllocsPerRun(10, func() {
		ss.pendingByKeys = nil
		ss.AddPending(em, es)
	})
	// Its room grows a few times.
	if allocations > 50 {
		t.Errorf("%v allocations for %v elements", allocations, len(es))
	}
	taken, _, _, _, _, _, _ := ss.kind.buildEventTimeBundle(ss, mtime.MaxTimestamp)
	if len(taken) != len(es) {
		t.Errorf("%v elements are in the bundle, want %v", len(taken), len(es))
	}
}

func TestLateElementsAreLeftOut(t *testing.T) {
	ws := WinStrat{AllowedLateness: time.Second}
	at := func(end mtime.Time) element {
		return element{window: window.IntervalWindow{Start: end - 1000, End: end}, sequence: int(end)}
	}
	early, onTime, late := at(1000), at(20_000), at(30_000)
	for _, c := range []struct{ es, want []element }{
		{nil, nil},
		{[]element{onTime, late}, []element{onTime, late}},
		{[]element{early, onTime, early, late, early}, []element{onTime, late}},
		{[]element{onTime, early}, []element{onTime}},
		{[]element{early}, []element{}},
	} {
		before := append([]element(nil), c.es...)
		got := ws.inTime(c.es, 10_000)
		if d := diffElements(got, c.want); d != "" {
			t.Errorf("others were in time: (-want +got)\n%v", d)
		}
		if d := diffElements(c.es, before); d != "" {
			t.Errorf("the elements were changed: (-want +got)\n%v", d)
		}
		if len(got) > 0 && len(got) == len(c.es) && &got[0] != &c.es[0] {
			t.Error("elements were copied though none is late")
		}
	}
	// A window may fire as long as the watermark is not beyond its completion.
	completion := ws.EarliestCompletion(early.window)
	if len(ws.inTime([]element{early}, completion)) != 1 || len(ws.inTime([]element{early}, completion+1)) != 0 {
		t.Errorf("a window that completes at %v is not late just from then on", completion)
	}
}

func diffElements(got, want []element) string {
	if reflect.DeepEqual(got, want) {
		return ""
	}
	return cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true }))
}
