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
	"math/rand"
	"sort"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/typex"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/window"
)

// paused is the residual of a source that has no more records for now. Its
// watermark stands.
func paused(delay time.Duration) Residual {
	return Residual{Element: encoded(0, "source"), Delay: delay, Hold: at(0)}
}

// feed is a job whose source gives one record a bundle, to a stage of ours.
func feed(t *testing.T, build func(em *ElementManager)) *job {
	return start(t, Config{EnableRTC: true, StreamingMode: true}, func(em *ElementManager) {
		em.AddStage("source", []string{"start"}, []string{"records"}, nil)
		build(em)
	})
}

func (j *job) record(at mtime.Time, value string, delay time.Duration) {
	j.t.Helper()
	rb := j.next("source")
	j.done(rb, map[string][][]byte{"records": {encoded(at, value)}}, paused(delay))
}

func (j *job) expect(stage, want string) RunBundle {
	j.t.Helper()
	rb := j.next(stage)
	if got := fmt.Sprint(j.values(rb)); got != want {
		j.t.Fatalf("%v got %v, want %v", stage, got, want)
	}
	return rb
}

const soon = 50 * time.Millisecond

func TestArrivals_Plain(t *testing.T) {
	j := feed(t, func(em *ElementManager) {
		em.AddStage("first", []string{"records"}, []string{"more"}, nil)
		em.AddStage("second", []string{"more"}, nil, nil)
	})
	for i := range 3 {
		value := fmt.Sprintf("a%v", i)
		j.record(1, value, soon)
		rb := j.expect("first", "["+value+"]")
		j.done(rb, map[string][][]byte{"more": {encoded(1, "b"+value)}})
		j.done(j.expect("second", "[b"+value+"]"), nil)
	}
	j.done(j.next("source"), nil)
	j.ends()
}

func stateful(em *ElementManager) {
	em.AddStage("state", []string{"records"}, []string{"out"}, nil)
	em.StageStateful("state", nil)
}

func TestArrivals_Stateful(t *testing.T) {
	j := feed(t, stateful)
	for i := range 3 {
		value := fmt.Sprintf("a%v", i)
		j.record(mtime.Time(i), value, soon)
		j.done(j.expect("state", "["+value+"]"), nil)
	}
	j.done(j.next("source"), nil)
	j.ends()
}

// A key that is in a bundle gets what came meanwhile as soon as it is free.
func TestArrivals_KeyInProgress(t *testing.T) {
	j := feed(t, stateful)
	j.record(1, "a0", soon)
	first := j.expect("state", "[a0]")
	j.record(1, "a1", soon)
	j.record(1, "b0", time.Minute)
	other := j.expect("state", "[b0]")
	j.quiet(100 * time.Millisecond)
	j.done(first, nil)
	j.done(j.expect("state", "[a1]"), nil)
	j.done(other, nil)
}

// setTimer has the stage of a bundle set an event time timer of a key.
func (j *job) setTimer(key, tag string, firing mtime.Time) {
	ss := j.em.stages["state"]
	j.em.addPending(ss.AddPending(j.em, []element{{
		window: window.GlobalWindow{}, timestamp: firing, holdTimestamp: firing,
		pane: typex.NoFiringPane(), transform: "state", family: "f", tag: tag,
		sequence: 1, keyBytes: []byte(key),
	}}))
}

// A timer whose time has not come neither stops the data of its key, nor
// takes the place of another key.
func TestArrivals_PastTimers(t *testing.T) {
	for _, oneKey := range []bool{false, true} {
		t.Run(fmt.Sprintf("OneKeyPerBundle=%v", oneKey), func(t *testing.T) {
			OneKeyPerBundle = oneKey
			t.Cleanup(func() { OneKeyPerBundle = false })
			j := feed(t, stateful)
			for i := range 8 {
				value := fmt.Sprintf("%c0", 'a'+i)
				j.record(1, value, soon)
				rb := j.expect("state", "["+value+"]")
				j.setTimer(value[:1], "later", 100)
				j.done(rb, nil)
			}
			j.record(200, "a1", 100*time.Millisecond)
			j.done(j.expect("state", "[a1]"), nil)
			// The timers fire once the watermark is there.
			j.done(j.next("source"), nil,
				Residual{Element: encoded(0, "source"), Delay: time.Minute, Hold: at(100)})
			fired := 0
			for fired < 8 {
				rb := j.next("state")
				fired += len(j.values(rb))
				j.done(rb, nil)
			}
			j.quiet(50 * time.Millisecond)
		})
	}
}

// The watermark comes to a timer while its key is in a bundle, and then stands.
func TestArrivals_TimerOfKeyInProgress(t *testing.T) {
	j := feed(t, stateful)
	j.record(1, "a0", soon)
	rb := j.expect("state", "[a0]")
	j.setTimer("a", "due", 100)
	j.done(rb, nil)
	j.record(200, "a1", soon)
	rb = j.expect("state", "[a1]")
	j.done(j.next("source"), nil,
		Residual{Element: encoded(0, "source"), Delay: time.Minute, Hold: at(100)})
	j.quiet(100 * time.Millisecond)
	j.done(rb, nil)
	j.done(j.expect("state", "[timer due]"), nil)
}

// Timers that wait are no reason to look at their stage again and again.
func TestArrivals_AtRest(t *testing.T) {
	j := feed(t, stateful)
	j.record(1, "a0", soon)
	rb := j.expect("state", "[a0]")
	j.setTimer("a", "later", 100)
	j.done(rb, nil)
	j.record(1, "b0", time.Minute)
	j.done(j.expect("state", "[b0]"), nil)
	j.quiet(50 * time.Millisecond)
	for range 20 {
		j.em.refreshCond.L.Lock()
		changed := len(j.em.changedStages)
		j.em.refreshCond.L.Unlock()
		if changed > 0 {
			t.Fatal("a stage is looked at again though it has nothing to do")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestArrivals_SideInputs(t *testing.T) {
	j := feed(t, func(em *ElementManager) {
		em.AddStage("side", []string{"start"}, []string{"table"}, nil)
		em.AddStage("join", []string{"records"}, nil,
			[]LinkID{{Transform: "join", Local: "table", Global: "table"}})
	})
	rb := j.next("side")
	j.record(1, "a0", soon)
	j.record(1, "a1", time.Minute)
	j.quiet(100 * time.Millisecond) // The table is not there yet.
	j.done(rb, map[string][][]byte{"table": {encoded(0, "row")}}, paused(2*time.Second))
	j.quiet(100 * time.Millisecond) // Not all of it is.
	j.done(j.next("side"), map[string][][]byte{"table": {encoded(0, "row")}})
	j.done(j.expect("join", "[a0 a1]"), nil)
}

// A pipeline that never checkpoints itself has no eager stage, though parts
// of a split come back.
func TestArrivals_OnlyBehindAPause(t *testing.T) {
	j := feed(t, stateful)
	rb := j.next("source")
	j.em.ReturnResiduals(rb, 1, oneByte, Residuals{Data: []Residual{{Element: encoded(0, "far")}}})
	j.done(rb, map[string][][]byte{"records": {encoded(1, "a0")}})
	j.done(j.next("source"), nil)
	j.done(j.expect("state", "[a0]"), nil)
	j.ends()
	for id, ss := range j.em.stages {
		if ss.arrivals.eager || ss.pauses.seen {
			t.Errorf("%v is scheduled otherwise than before", id)
		}
	}
}

func TestArrivals_DownstreamOnly(t *testing.T) {
	j := feed(t, func(em *ElementManager) {
		em.AddStage("other", []string{"start"}, []string{"table"}, nil)
		em.AddStage("sums", []string{"records"}, []string{"totals"}, nil)
		em.StageAggregates("sums", WinStrat{Trigger: &TriggerDefault{}})
		em.AddStage("sink", []string{"totals"}, nil, nil)
		em.AddStage("beside", []string{"table"}, nil, nil)
		em.AddStage("join", []string{"table"}, nil,
			[]LinkID{{Transform: "join", Local: "totals", Global: "totals"}})
	})
	rb := j.next("source")
	j.done(rb, nil, paused(time.Minute))
	want := map[string]bool{"source": true, "sums": true, "sink": true}
	for id, ss := range j.em.stages {
		if ss.arrivals.eager != want[id] {
			t.Errorf("%v eager: %v, want %v", id, ss.arrivals.eager, want[id])
		}
	}
}

// Whatever a key holds: nothing is lost or given twice, data and timers do not
// share a bundle, timers fire when they are due and only then, each kind comes
// in the order of its times.
func TestTakeReady(t *testing.T) {
	for seed := range int64(2000) {
		r := rand.New(rand.NewSource(seed))
		OneElementPerKey = r.Intn(3) == 0
		dnt := &dataAndTimers{timers: map[timerKey]timerTimes{}}
		left := map[string]bool{}
		stale := 0
		for i := range r.Intn(12) {
			e := element{timestamp: mtime.Time(r.Intn(10)), window: window.GlobalWindow{}, sequence: i}
			if r.Intn(2) == 0 {
				e.elmBytes = fmt.Appendf(nil, "data %v", i)
				left[string(e.elmBytes)] = true
			} else {
				e.tag = fmt.Sprint("timer ", i)
				set := e.timestamp
				if r.Intn(4) == 0 {
					set++ // It was set anew, for another time.
					stale++
				} else {
					left[e.tag] = true
				}
				dnt.timers[timerKey{tag: e.tag, window: e.window}] = timerTimes{firing: set}
			}
			dnt.elements.push(e)
		}
		watermark := mtime.Time(0)
		for watermark <= 10 {
			b := arrivalsBundle{watermark: watermark, holds: map[mtime.Time]int{}}
			taken, more := dnt.takeReady(&b)
			if more && len(taken) == 0 {
				t.Fatalf("seed %v: more is ready, but nothing was taken", seed)
			}
			if OneElementPerKey && len(taken) > 1 {
				t.Fatalf("seed %v: %v elements taken", seed, len(taken))
			}
			times := make([]int, len(taken))
			for i, e := range taken {
				times[i] = int(e.timestamp)
				name := e.tag
				if e.IsData() {
					name = string(e.elmBytes)
				} else if e.timestamp > watermark {
					t.Fatalf("seed %v: %v fired at %v", seed, e, watermark)
				}
				if !left[name] {
					t.Fatalf("seed %v: %q came twice", seed, name)
				}
				delete(left, name)
				if e.IsTimer() != taken[0].IsTimer() {
					t.Fatalf("seed %v: data and timers in one bundle", seed)
				}
			}
			if !sort.IntsAreSorted(times) {
				t.Fatalf("seed %v: the times are %v", seed, times)
			}
			if !more {
				watermark++
			}
		}
		OneElementPerKey = false
		if len(left) > 0 || dnt.elements.Len() > stale {
			t.Fatalf("seed %v: left over: %v, %v", seed, left, dnt.elements)
		}
	}
}
