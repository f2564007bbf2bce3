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
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/exec"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/typex"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/coder"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/window"
)

// job runs an ElementManager with the test in the place of the SDK.
type job struct {
	t       *testing.T
	em      *ElementManager
	bundles <-chan RunBundle
	ahead   []RunBundle // They came before one of another stage was asked for.
}

// oneByte is the coding of all elements here: the first byte is the length of
// what follows, the next one is the key of a keyed element.
var oneByte = PColInfo{
	GlobalID: "of the test",
	WDec:     exec.MakeWindowDecoder(coder.NewGlobalWindow()),
	WEnc:     exec.MakeWindowEncoder(coder.NewGlobalWindow()),
	EDec: func(r io.Reader) []byte {
		var n [1]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			panic(err)
		}
		rest := make([]byte, n[0])
		if _, err := io.ReadFull(r, rest); err != nil {
			panic(err)
		}
		return append(n[:], rest...)
	},
	KeyDec: func(r io.Reader) []byte {
		var b [2]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			panic(err)
		}
		return b[1:]
	},
}

// encoded is a windowed value of a string, in the global window.
func encoded(at mtime.Time, value string) []byte {
	es := elements{es: []element{{
		window:    window.GlobalWindow{},
		timestamp: at,
		pane:      typex.NoFiringPane(),
		elmBytes:  append([]byte{byte(len(value))}, value...),
	}}}
	return es.ToData(oneByte)[0]
}

// start runs a job of the stages that a test adds. They read from the
// PCollection "start", which holds one element.
func start(t *testing.T, config Config, build func(em *ElementManager)) *job {
	t.Helper()
	em := NewElementManager(config)
	em.AddStage("impulse", nil, []string{"start"}, nil)
	build(em)
	em.Impulse("impulse")
	ctx, cancel := context.WithCancelCause(context.Background())
	t.Cleanup(func() {
		cancel(nil)
		em.refreshCond.L.Lock()
		em.refreshCond.Broadcast()
		em.refreshCond.L.Unlock()
	})
	var id atomic.Int64
	fail := func(err error) {
		t.Error("the job failed:", err)
		cancel(err)
	}
	bundles := em.Bundles(ctx, fail, func() string {
		return fmt.Sprint("bundle", id.Add(1))
	})
	return &job{t: t, em: em, bundles: bundles}
}

// next is the next bundle of a stage, which must come within seconds.
func (j *job) next(stage string) RunBundle {
	j.t.Helper()
	for i, rb := range j.ahead {
		if rb.StageID == stage {
			j.ahead = append(j.ahead[:i:i], j.ahead[i+1:]...)
			return rb
		}
	}
	timeout := time.After(10 * time.Second)
	for {
		select {
		case rb, ok := <-j.bundles:
			if !ok {
				j.t.Fatalf("the job ended, a bundle of %v was expected", stage)
			}
			if rb.StageID == stage {
				return rb
			}
			j.ahead = append(j.ahead, rb)
		case <-timeout:
			j.t.Fatalf("no bundle of %v came\n%v", stage, j.em.DumpStages())
		}
	}
}

// quiet checks that no bundle comes for a while, and that the job goes on.
func (j *job) quiet(d time.Duration) {
	j.t.Helper()
	if len(j.ahead) > 0 {
		j.t.Fatalf("unexpected bundle of %v", j.ahead[0].StageID)
	}
	select {
	case rb, ok := <-j.bundles:
		if !ok {
			j.t.Fatal("the job ended with work left")
		}
		j.t.Fatalf("unexpected bundle of %v: %v", rb.StageID, j.values(rb))
	case <-time.After(d):
	}
}

// ends checks that the job has ended.
func (j *job) ends() {
	j.t.Helper()
	if len(j.ahead) > 0 {
		j.t.Fatalf("a bundle of %v was left", j.ahead[0].StageID)
	}
	select {
	case rb, ok := <-j.bundles:
		if ok {
			j.t.Fatalf("a bundle of %v came after the end: %v", rb.StageID, j.values(rb))
		}
	case <-time.After(10 * time.Second):
		j.t.Fatalf("the job did not end\n%v", j.em.DumpStages())
	}
}

// values are the strings in a bundle, in order; timers are told by their tag.
func (j *job) values(rb RunBundle) []string {
	ss := j.em.stages[rb.StageID]
	ss.mu.Lock()
	defer ss.mu.Unlock()
	var values []string
	for _, e := range ss.inprogress[rb.BundleID].es {
		if e.IsTimer() {
			values = append(values, "timer "+e.tag)
		} else {
			values = append(values, string(e.elmBytes[1:]))
		}
	}
	return values
}

// done ends a bundle with its output and its residuals.
func (j *job) done(rb RunBundle, output map[string][][]byte, residuals ...Residual) {
	d := TentativeData{}
	infos := map[string]PColInfo{}
	for pcol, values := range output {
		infos[pcol] = oneByte
		for _, v := range values {
			d.WriteData(pcol, v)
		}
	}
	j.em.PersistBundle(rb, infos, d, oneByte, Residuals{Data: residuals})
}

func at(t mtime.Time) *mtime.Time { return &t }

func TestResiduals_Delay(t *testing.T) {
	j := start(t, Config{EnableRTC: true}, func(em *ElementManager) {
		em.AddStage("source", []string{"start"}, []string{"records"}, nil)
	})
	rb := j.next("source")
	begin := time.Now()
	j.done(rb, nil, Residual{Element: encoded(0, "rest"), Delay: 1500 * time.Millisecond})
	j.quiet(200 * time.Millisecond)
	rb = j.next("source")
	if waited := time.Since(begin); waited < 1500*time.Millisecond {
		t.Errorf("resumed after %v, before its delay", waited)
	}
	if got := fmt.Sprint(j.values(rb)); got != "[rest]" {
		t.Errorf("resumed with %v", got)
	}
	j.done(rb, nil)
	j.ends()
}

func TestResiduals_EachWaitsForItself(t *testing.T) {
	j := start(t, Config{EnableRTC: true}, func(em *ElementManager) {
		em.AddStage("source", []string{"start"}, []string{"records"}, nil)
	})
	j.done(j.next("source"), nil,
		Residual{Element: encoded(0, "slow"), Delay: 2 * time.Second},
		Residual{Element: encoded(0, "soon"), Delay: 500 * time.Millisecond},
		Residual{Element: encoded(0, "now")})
	for _, want := range []string{"[now]", "[soon]", "[slow]"} {
		rb := j.next("source")
		if got := fmt.Sprint(j.values(rb)); got != want {
			t.Errorf("resumed %v, want %v", got, want)
		}
		j.done(rb, nil)
	}
	j.ends()
}

func TestResiduals_DelayOnTheClockOfATestStream(t *testing.T) {
	j := start(t, Config{EnableRTC: true}, func(em *ElementManager) {
		em.AddStage("test", nil, []string{"unused"}, nil)
		em.AddStage("source", []string{"start"}, []string{"records"}, nil)
		tsb := em.AddTestStream("test", map[string]string{"tag": "unused"})
		tsb.AddProcessingTimeEvent(time.Second)
		tsb.AddProcessingTimeEvent(5 * time.Second)
	})
	clock := j.em.testStreamHandler
	rb := j.next("source")
	begin := clock.Now()
	j.done(rb, nil, Residual{Element: encoded(0, "rest"), Delay: 3 * time.Second})
	rb = j.next("source")
	j.em.refreshCond.L.Lock()
	passed := clock.Now() - begin
	j.em.refreshCond.L.Unlock()
	if passed < 3000 || passed > 6000 {
		t.Errorf("resumed %v ms later by the clock of the TestStream", passed)
	}
	j.done(rb, nil)
	j.ends()
}

func TestResiduals_DelayAfterATestStream(t *testing.T) {
	j := start(t, Config{EnableRTC: true}, func(em *ElementManager) {
		em.AddStage("test", nil, []string{"unused"}, nil)
		em.AddStage("source", []string{"start"}, []string{"records"}, nil)
		em.AddTestStream("test", map[string]string{"tag": "unused"})
	})
	for range 2 {
		// The second time, no event of the TestStream is left to go on with.
		j.done(j.next("source"), nil,
			Residual{Element: encoded(0, "rest"), Delay: 50 * time.Millisecond})
	}
	j.done(j.next("source"), nil)
	j.ends()
}

func TestResiduals_HoldTheWatermarks(t *testing.T) {
	j := start(t, Config{EnableRTC: true}, func(em *ElementManager) {
		em.AddStage("source", []string{"start"}, []string{"records"}, nil)
		em.AddStage("sums", []string{"records"}, []string{"totals"}, nil)
		em.StageAggregates("sums", WinStrat{Trigger: &TriggerDefault{}})
	})
	source := j.em.stages["source"]
	j.done(j.next("source"), map[string][][]byte{"records": {encoded(5, "a1")}},
		Residual{Element: encoded(0, "slow"), Delay: 2 * time.Second, Hold: at(10)},
		Residual{Element: encoded(0, "fast"), Hold: at(20)})
	rb := j.next("source")
	if got := source.OutputWatermark(); got != 10 {
		t.Errorf("output watermark %v while both are left, want 10", got)
	}
	j.done(rb, nil)
	j.quiet(100 * time.Millisecond)
	if got := source.OutputWatermark(); got != 10 {
		t.Errorf("output watermark %v while one is parked, want 10", got)
	}
	if got := source.InputWatermark(); got > 0 {
		t.Errorf("input watermark %v, the parked element is at 0", got)
	}
	rb = j.next("source")
	if got := source.OutputWatermark(); got != 10 {
		t.Errorf("output watermark %v while the last is in a bundle, want 10", got)
	}
	j.done(rb, nil, Residual{Element: encoded(0, "slow"), Hold: at(30)})
	rb = j.next("source")
	if got := source.OutputWatermark(); got != 30 {
		t.Errorf("output watermark %v, want 30", got)
	}
	j.done(rb, nil)
	rb = j.next("sums")
	if got := fmt.Sprint(j.values(rb)); got != "[a1]" {
		t.Errorf("the aggregate fired with %v", got)
	}
	j.done(rb, nil)
	j.ends()
}

func TestResiduals_SplitKeepsItsHold(t *testing.T) {
	j := start(t, Config{EnableRTC: true}, func(em *ElementManager) {
		em.AddStage("source", []string{"start"}, []string{"records"}, nil)
	})
	source := j.em.stages["source"]
	rb := j.next("source")
	j.em.ReturnResiduals(rb, 1, oneByte, Residuals{
		Data: []Residual{{Element: encoded(0, "far"), Hold: at(7)}},
	})
	far := j.next("source")
	j.done(rb, nil, Residual{Element: encoded(0, "near"), Hold: at(9)})
	near := j.next("source")
	if got := source.OutputWatermark(); got != 7 {
		t.Errorf("output watermark %v, want that of the split, 7", got)
	}
	j.done(far, nil)
	j.done(near, nil, Residual{Element: encoded(0, "near"), Hold: at(11)})
	rb = j.next("source")
	if got := source.OutputWatermark(); got != 11 {
		t.Errorf("output watermark %v, want 11", got)
	}
	j.done(rb, nil)
	j.ends()
}

// Without a self-checkpoint the output watermark follows the input watermark,
// as it did before.
func TestResiduals_NoneSeen(t *testing.T) {
	ss := makeStageState("stage", []string{"in"}, []string{"out"}, nil)
	ss.updateUpstreamWatermark("in", 50)
	ss.input = 40
	ss.pending = elementHeap{{timestamp: 45, elmBytes: []byte{0}}}
	if got := ss.outputEstimate(); got != 40 {
		t.Errorf("outputEstimate() = %v, want the input watermark, 40", got)
	}
}

func TestDueAt(t *testing.T) {
	tests := []struct {
		now   mtime.Time
		delay time.Duration
		want  mtime.Time
	}{
		{100, time.Millisecond, 101},
		{100, time.Nanosecond, 101},
		{100, 1500 * time.Microsecond, 102},
		{100, 990 * time.Millisecond, 1090},
		{mtime.MinTimestamp, time.Second, mtime.MinTimestamp + 1000},
		{mtime.MaxTimestamp - 5, time.Hour, mtime.MaxTimestamp},
	}
	for _, test := range tests {
		if got := dueAt(test.now, test.delay); got != test.want {
			t.Errorf("dueAt(%v, %v) = %v, want %v", test.now, test.delay, got, test.want)
		}
	}
}

func TestHoldOf(t *testing.T) {
	if got := HoldOf(nil); got != nil {
		t.Errorf("HoldOf(nil) = %v, want nil", *got)
	}
	got := HoldOf(map[string]*timestamppb.Timestamp{
		"a": {Seconds: 3, Nanos: 2e6},
		"b": {Seconds: 1, Nanos: 5e6},
	})
	if got == nil || *got != 1005 {
		t.Errorf("HoldOf gives %v, want the earlier, 1005", got)
	}
}
