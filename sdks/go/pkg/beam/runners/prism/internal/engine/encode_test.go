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
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/exec"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/typex"
	"github.com/google/go-cmp/cmp"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/coder"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/window"
)

// randomElements returns elements of one window each, with runs of timers
// among them if timers is set.
func randomElements(r *rand.Rand, kind windowKind, number int, timers bool) []element {
	panes := allPanes()
	es := make([]element, number)
	e := element{window: kind.random(r), pane: panes[0]}
	isTimer := false
	for i := range es {
		if r.IntN(3) == 0 {
			e.window = kind.random(r)
		}
		if r.IntN(3) == 0 {
			// Also those that no SDK can decode: they are sent without a pane.
			e.pane = panes[r.IntN(len(panes))]
		}
		if timers && r.IntN(4) == 0 {
			isTimer = !isTimer
		}
		e.timestamp = mtime.Time(r.Int64N(1<<40) - 1<<39)
		e.holdTimestamp = mtime.Time(r.Int64N(1 << 30))
		e.keyBytes = []byte{1, byte('a' + r.IntN(3))}
		e.transform, e.family, e.tag, e.elmBytes = "", "", "", append([]byte{}, make([]byte, r.IntN(20))...)
		if isTimer {
			e.elmBytes = nil
			e.transform = []string{"t1", "t2"}[r.IntN(2)]
			e.family = []string{"f1", "f2"}[r.IntN(2)]
			e.tag = []string{"", "tag"}[r.IntN(2)]
		}
		es[i] = e
	}
	return es
}

// encodedBySDK encodes an element with the SDK's functions alone.
func encodedBySDK(info PColInfo, e element) []byte {
	var b bytes.Buffer
	if e.IsData() {
		exec.EncodeWindowedValueHeader(info.WEnc, []typex.Window{e.window}, e.timestamp, e.pane, &b)
		b.Write(e.elmBytes)
		return b.Bytes()
	}
	b.Write(e.keyBytes)
	coder.EncodeStringUTF8(e.tag, &b)
	info.WEnc.Encode([]typex.Window{e.window}, &b)
	coder.EncodeBool(false, &b)
	coder.EncodeEventTime(e.timestamp, &b)
	coder.EncodeEventTime(e.holdTimestamp, &b)
	coder.EncodePane(e.pane, &b)
	return b.Bytes()
}

func TestEncodesAsTheSDKDoes(t *testing.T) {
	forAllKinds(t, func(t *testing.T, r *rand.Rand, kind windowKind, info PColInfo) {
		for range 50 {
			es := randomElements(r, kind, r.IntN(40), false)
			got := elements{es: es}.ToData(info)
			if len(got) != len(es) {
				t.Fatalf("%v encodings of %v elements", len(got), len(es))
			}
			for i, e := range es {
				if want := encodedBySDK(info, e); !bytes.Equal(got[i], want) || cap(got[i]) != len(want) {
					t.Fatalf("%v is encoded as %x, want %x", e, got[i], want)
				}
			}
		}
	})
}

// blocksByElement puts the encodings of elements into blocks.
func blocksByElement(info PColInfo, es []element) (blocks []Block, data int) {
	for _, e := range es {
		b := Block{Kind: BlockTimer, Transform: e.transform, Family: e.family}
		if e.IsData() {
			b.Kind = BlockData
			data++
		}
		last := len(blocks) - 1
		if last < 0 || blocks[last].Kind != b.Kind || blocks[last].Transform != b.Transform || blocks[last].Family != b.Family {
			blocks = append(blocks, b)
			last++
		}
		blocks[last].Bytes = append(blocks[last].Bytes, encodedBySDK(info, e))
	}
	for i := range blocks {
		blocks[i].Bytes = [][]byte{bytes.Join(blocks[i].Bytes, nil)}
	}
	return blocks, data
}

func TestEncodesBlocksOfDataAndTimers(t *testing.T) {
	forAllKinds(t, func(t *testing.T, r *rand.Rand, kind windowKind, info PColInfo) {
		for range 100 {
			es := randomElements(r, kind, r.IntN(40), true)
			em := NewElementManager(Config{})
			em.AddStage("stage", []string{"in"}, nil, nil)
			em.stages["stage"].inprogress = map[string]elements{"b": {es: es}}
			made, data := em.DataAndTimerInputForBundle(RunBundle{StageID: "stage", BundleID: "b"}, info)
			var got []Block
			for _, b := range made {
				got = append(got, *b)
			}
			want, wantData := blocksByElement(info, es)
			if data != wantData {
				t.Fatalf("%v elements are data, want %v", data, wantData)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("other blocks: (-want +got)\n%v", d)
			}
		}
	})
}

func TestEncodesAgainWhatItDecoded(t *testing.T) {
	forAllKinds(t, func(t *testing.T, r *rand.Rand, kind windowKind, info PColInfo) {
		kind.most = 1
		chunk := randomChunk(r, kind, info, 100)
		es, _ := decodeOutput(makeStageState("s", nil, nil, nil), RunBundle{}, "out", info, [][]byte{chunk}, 0)
		blocks, data := encodeBlocks(info, es)
		if len(blocks) != 1 || data != 100 {
			t.Fatalf("%v blocks with %v elements", len(blocks), data)
		}
		// Panes of which an SDK sends more than there is to say become shorter.
		again, _ := decodeOutput(makeStageState("s", nil, nil, nil), RunBundle{}, "out", info, blocks[0].Bytes, 0)
		if d := diffElements(again, es); d != "" {
			t.Errorf("what was encoded again is decoded otherwise: (-want +got)\n%v", d)
		}
	})
}

func TestJoinedBlocks(t *testing.T) {
	one := &Block{Bytes: [][]byte{{1, 2}}}
	if got := one.Joined(); &got[0] != &one.Bytes[0][0] {
		t.Error("one slice was copied")
	}
	for _, b := range []*Block{{}, {Bytes: [][]byte{}}} {
		if got := b.Joined(); len(got) != 0 {
			t.Errorf("no slices were joined to %v", got)
		}
	}
	if got := (&Block{Bytes: [][]byte{{1, 2}, {}, {3}}}).Joined(); !bytes.Equal(got, []byte{1, 2, 3}) {
		t.Errorf("three slices were joined to %v", got)
	}
}

func TestEncodingAllocatesLittle(t *testing.T) {
	info := infoOf(windowKinds()[1], false)
	es := make([]element, 1000)
	for i := range es {
		es[i] = element{window: window.IntervalWindow{Start: 0, End: 1000}, pane: typex.NoFiringPane(), elmBytes: []byte{1, 2}}
	}
	for name, encode := range map[string]func(){
		"ToData":       func() { elements{es: es}.ToData(info) },
		"encodeBlocks": func() { encodeBlocks(info, es) },
	} {
		if allocations := testing.AllocsPerRun(10, encode); allocations > 50 {
			t.Errorf("%v: %v allocations for %v elements", name, allocations, len(es))
		}
	}
}

func BenchmarkEncodeBlocks(b *testing.B) {
	info := infoOf(windowKinds()[0], false)
	const number = 10_000
	es := make([]element, number)
	for i := range es {
		es[i] = element{window: window.GlobalWindow{}, pane: typex.NoFiringPane(), elmBytes: make([]byte, 26)}
	}
	b.ReportAllocs()
	for b.Loop() {
		encodeBlocks(info, es)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*number), "ns/element")
}
