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
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// residual is what an element carries that an SDK has handed back
// unfinished: a source that paused, or the far part of a split.
type residual struct {
	delay time.Duration // How long the SDK asked to be left alone.
	hold  mtime.Time    // Nothing earlier comes out of it, the SDK promised.
}

// outputBound is the earliest event time of what may still come out of an
// outstanding element: the promise of its SDK, or else its own timestamp.
func (e *element) outputBound() mtime.Time {
	if e.residual != nil {
		return e.residual.hold
	}
	return e.timestamp
}

// HoldOf gives the earliest of the output watermarks that an SDK reported
// for a residual, or nil if it reported none.
func HoldOf(watermarks map[string]*timestamppb.Timestamp) *mtime.Time {
	if len(watermarks) == 0 {
		return nil
	}
	hold := mtime.MaxTimestamp
	for _, wm := range watermarks {
		hold = mtime.Min(hold, mtime.FromTime(wm.AsTime()))
	}
	return &hold
}

// residualElements makes elements of residuals, one for each window.
//
// Each keeps the delay and the hold of its own residual. Two splits of one
// source advance apart, and the slower one holds the watermark of both.
func residualElements(residuals []Residual, info PColInfo, rb RunBundle) []element {
	var all []element
	for _, r := range residuals {
		for _, e := range reElementResiduals([]Residual{r}, info, rb) {
			e.residual = &residual{delay: r.Delay, hold: e.timestamp}
			if r.Hold != nil {
				e.residual.hold = *r.Hold
			}
			e.sequence = len(all)
			all = append(all, e)
		}
	}
	return all
}

// pauses are the residuals of a stage that wait for their time.
//
// They are work of the job like any pending element: the job does not end
// before them, and they hold the watermarks of the stage.
type pauses struct {
	seen   bool // The stage has checkpointed itself before.
	parked []parkedElement
}

type parkedElement struct {
	due mtime.Time // In the processing time of the job.
	element
}

// keepResiduals takes back what an SDK left unfinished at the end of a
// bundle, and returns by how much that adds to the pending work.
//
// What asked for a delay is parked until then, and the stage is woken at
// that time. The rest is pending at once.
func (em *ElementManager) keepResiduals(ss *stageState, unprocessed []element) int {
	em.refreshCond.L.Lock()
	defer em.refreshCond.L.Unlock()
	now := em.processingTimeNow()
	if em.clockRuns() && em.config.EnableRTC {
		now++ // A fraction of a millisecond has been cut off.
	}
	ready, times := ss.park(unprocessed, now)
	for _, t := range times {
		em.processTimeEvents.Schedule(t, ss.ID)
		em.wakeUpAt(t)
	}
	return len(unprocessed) - len(ready) + ss.AddPending(em, ready)
}

// park sets those elements aside that asked for a delay. It returns the
// others, and the times at which the parked ones are due.
func (ss *stageState) park(unprocessed []element, now mtime.Time) ([]element, []mtime.Time) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.pauses.seen = true
	var ready []element
	var times []mtime.Time
	for _, e := range unprocessed {
		if e.residual.delay <= 0 {
			ready = append(ready, e)
			continue
		}
		due := dueAt(now, e.residual.delay)
		ss.pauses.parked = append(ss.pauses.parked, parkedElement{due, e})
		times = append(times, due)
	}
	return ready, times
}

// dueAt is the first millisecond at which a delay is over: nothing resumes too
// early, so a fraction counts up.
func dueAt(now mtime.Time, delay time.Duration) mtime.Time {
	millis := delay.Milliseconds()
	if delay > time.Duration(millis)*time.Millisecond {
		millis++
	}
	if int64(mtime.MaxTimestamp)-int64(now) < millis {
		return mtime.MaxTimestamp
	}
	return now + mtime.Time(millis)
}

// resume makes those parked elements pending whose time has come.
//
// Callers must hold the lock of the stage.
func (ss *stageState) resume(em *ElementManager, now mtime.Time) {
	var due []element
	waiting := ss.pauses.parked[:0]
	for _, p := range ss.pauses.parked {
		if p.due <= now {
			due = append(due, p.element)
		} else {
			waiting = append(waiting, p)
		}
	}
	if len(due) == 0 {
		return
	}
	clear(ss.pauses.parked[len(waiting):])
	ss.pauses.parked = waiting
	// They count as pending since they were parked.
	ss.kind.addPending(ss, em, due)
}

// minTimestamp is the earliest event time of the parked elements.
func (p *pauses) minTimestamp() mtime.Time {
	earliest := mtime.MaxTimestamp
	for _, e := range p.parked {
		earliest = mtime.Min(earliest, e.timestamp)
	}
	return earliest
}

// outputEstimate is how far the output watermark may go where the stage has
// checkpointed itself: as far as each outstanding element allows. For all
// other stages that is the input watermark.
//
// Callers must hold the lock of the stage.
func (ss *stageState) outputEstimate() mtime.Time {
	if !ss.pauses.seen {
		return ss.input
	}
	_, bound := ss.UpstreamWatermark()
	for i := range ss.pending {
		bound = mtime.Min(bound, ss.pending[i].outputBound())
	}
	for _, p := range ss.pauses.parked {
		bound = mtime.Min(bound, p.outputBound())
	}
	for _, bundle := range ss.inprogress {
		for i := range bundle.es {
			bound = mtime.Min(bound, bundle.es[i].outputBound())
		}
	}
	return bound
}

// clockRuns tells whether processing time goes on by itself. That of a
// TestStream does not, before its last event.
func (em *ElementManager) clockRuns() bool {
	return em.testStreamHandler == nil || em.testStreamHandler.completed
}

// waitsForClock tells whether the job has only to wait for its clock.
//
// Callers must hold em.refreshCond.L.
func (em *ElementManager) waitsForClock() bool {
	return em.clockRuns() && len(em.processTimeEvents.events) > 0
}
