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
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/window"
)

// A stage is usually scheduled when its watermark moves. Behind a source that
// pauses the watermark may stand for a long time while records come, so there
// new data is a reason, too. This file holds what differs for these stages,
// which are called eager; all others keep their scheduling.

// arrivals are what an eager stage knows of its new data.
type arrivals struct {
	eager bool
	keys  set[string] // Keys to look at, of a stateful stage: they have got data.
	all   bool        // All keys are to be looked at, as a look was broken off.
}

// makeEager marks a stage that checkpointed itself, and all that its data goes
// to, as stages to be scheduled when data arrives.
//
// Callers must hold em.refreshCond.L.
func (em *ElementManager) makeEager(ss *stageState) {
	if !ss.becomeEager() {
		return
	}
	for _, output := range ss.outputIDs {
		for _, id := range em.consumers[output] {
			em.makeEager(em.stages[id])
		}
	}
}

// becomeEager returns whether the stage was not eager before.
func (ss *stageState) becomeEager() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.arrivals.eager {
		return false
	}
	ss.arrivals.eager = true
	ss.arrivals.keys = set[string]{}
	if _, stateful := ss.kind.(*statefulStageKind); stateful {
		for key, dnt := range ss.pendingByKeys {
			if hasData(dnt.elements) {
				ss.arrivals.keys.insert(key)
			}
		}
	}
	return true
}

func hasData(elements []element) bool {
	for i := range elements {
		if elements[i].IsData() {
			return true
		}
	}
	return false
}

// noteArrivals remembers the keys that have got data.
//
// Callers must hold the lock of the stage.
func (ss *stageState) noteArrivals(added []element) {
	if !ss.arrivals.eager {
		return
	}
	for i := range added {
		if added[i].IsData() {
			ss.arrivals.keys.insert(string(added[i].keyBytes))
		}
	}
}

// attend has the eager stages looked at that a bundle gave data to. Where the
// bundle left residuals, they are eager from now on.
func (em *ElementManager) attend(ss *stageState, d TentativeData, residuals Residuals) {
	em.refreshCond.L.Lock()
	defer em.refreshCond.L.Unlock()
	if len(residuals.Data) > 0 {
		em.makeEager(ss)
	}
	for output, data := range d.Raw {
		if len(data) == 0 {
			continue
		}
		for _, id := range em.consumers[output] {
			em.markIfEager(id)
		}
	}
}

func (em *ElementManager) markIfEager(id string) {
	ss := em.stages[id]
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.arrivals.eager {
		em.changedStages.insert(id)
	}
}

// hasArrivals tells whether data alone is a reason to run a bundle.
//
// Callers must hold the lock of the stage.
func (ss *stageState) hasArrivals(em *ElementManager) bool {
	if !ss.arrivals.eager {
		return false
	}
	switch ss.kind.(type) {
	case *ordinaryStageKind:
		return len(ss.pending) > 0 && ss.sidesArrived(em)
	case *statefulStageKind:
		if ss.arrivals.all {
			return ss.sidesArrived(em)
		}
		for key := range ss.arrivals.keys {
			if !ss.inprogressKeys.present(key) {
				return ss.sidesArrived(em)
			}
		}
	}
	return false
}

// sidesArrived tells whether data may meet the side inputs of the stage
// though the watermark stands: no more will come of any of them, and all that
// came can be seen at this watermark. Else the watermark decides, as always:
// what a side input has so far need not be what its trigger lets through.
//
// Callers must hold the lock of the stage.
func (ss *stageState) sidesArrived(em *ElementManager) bool {
	_, upstream := ss.UpstreamWatermark()
	for _, side := range ss.sides {
		parent := em.stages[em.pcolParents[side.Global]]
		if parent.OutputWatermark() <= mtime.EndOfGlobalWindowTime {
			return false
		}
		link := LinkID{Transform: side.Transform, Local: side.Local}
		for w := range ss.sideInputs[link] {
			if w != (window.GlobalWindow{}) && w.MaxTimestamp() > upstream {
				return false
			}
		}
	}
	return true
}

// buildArrivalsBundle makes a bundle of an eager stateful stage: of each key
// the data that has arrived, or the timers that the watermark has passed.
//
// A timer whose time has not come lets data by. A key that has nothing else
// takes no part, and is no reason to look at the stage again.
func (ss *stageState) buildArrivalsBundle(watermark mtime.Time) (elementHeap, mtime.Time, set[string], map[mtime.Time]int, []bundlePane, bool, int) {
	b := arrivalsBundle{
		watermark: watermark,
		minTs:     mtime.MaxTimestamp,
		keys:      set[string]{},
		holds:     map[mtime.Time]int{},
	}
	moved := ss.input != watermark || ss.previousInput != ss.input
	if ss.arrivals.all || moved {
		// Timers may be due, of any key.
		ss.arrivals.all = false
		for key := range ss.pendingByKeys {
			if !ss.take(&b, key) {
				ss.arrivals.all = true
				break
			}
		}
	} else {
		for key := range ss.arrivals.keys {
			if !ss.take(&b, key) {
				break
			}
		}
	}
	return b.elements, b.minTs, b.keys, b.holds, nil, b.again, 0
}

type arrivalsBundle struct {
	watermark mtime.Time
	elements  elementHeap
	minTs     mtime.Time
	keys      set[string]
	holds     map[mtime.Time]int
	again     bool // More can be taken, or a cleared timer held the watermark.
}

// take adds what is ready of a key to a bundle. It returns false if the
// bundle can have no more keys.
func (ss *stageState) take(b *arrivalsBundle, key string) bool {
	if OneKeyPerBundle && len(b.keys) > 0 {
		b.again = true
		return false
	}
	if ss.inprogressKeys.present(key) {
		// To be looked at when its bundle is done.
		ss.arrivals.keys.insert(key)
		return true
	}
	dnt, ok := ss.pendingByKeys[key]
	if !ok {
		ss.arrivals.keys.remove(key)
		return true
	}
	taken, more := dnt.takeReady(b)
	if len(taken) > 0 {
		b.keys.insert(key)
		b.minTs = mtime.Min(b.minTs, taken[0].timestamp)
		b.elements = append(b.elements, taken...)
	}
	if more {
		// The rest follows when this bundle is done, and the key is free.
		ss.arrivals.keys.insert(key)
	} else {
		ss.arrivals.keys.remove(key)
	}
	if dnt.elements.Len() == 0 {
		delete(ss.pendingByKeys, key)
	}
	return true
}

// takeReady removes from a key what one bundle may have of it: either data or
// timers, since an SDK gives no order between the two. It returns that, in
// order, and whether more of the key is ready.
func (dnt *dataAndTimers) takeReady(b *arrivalsBundle) ([]element, bool) {
	var taken, aside []element
	more := false
	for dnt.elements.Len() > 0 {
		e := dnt.elements.pop()
		if e.IsTimer() {
			key := timerKey{family: e.family, tag: e.tag, window: e.window}
			set, ok := dnt.timers[key]
			if !ok || set.firing != e.timestamp {
				// It was cleared or set anew, and held the watermark until now.
				b.again = true
				continue
			}
			if e.timestamp > b.watermark {
				aside = append(aside, e)
				continue
			}
		}
		if len(taken) > 0 && (OneElementPerKey || taken[0].IsTimer() != e.IsTimer()) {
			aside = append(aside, e)
			more = true
			break
		}
		if e.IsTimer() {
			delete(dnt.timers, timerKey{family: e.family, tag: e.tag, window: e.window})
			b.holds[e.holdTimestamp]++
		}
		taken = append(taken, e)
	}
	for _, e := range aside {
		dnt.elements.push(e)
	}
	return taken, more
}
