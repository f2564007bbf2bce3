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
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/exec"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/typex"
	"github.com/google/go-cmp/cmp"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/coder"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/window"
)

// namedWindow is a window of a kind that Prism does not know.
type namedWindow struct {
	name string
	end  mtime.Time
}

func (w namedWindow) MaxTimestamp() typex.EventTime  { return w.end }
func (w namedWindow) Equals(other typex.Window) bool { return w == other }

// namedWindowCoder encodes their number, and of each its end and its name.
type namedWindowCoder struct{}

func (c namedWindowCoder) Encode(ws []typex.Window, w io.Writer) error {
	coder.EncodeInt32(int32(len(ws)), w)
	for _, one := range ws {
		c.EncodeSingle(one, w)
	}
	return nil
}

func (namedWindowCoder) EncodeSingle(one typex.Window, w io.Writer) error {
	coder.EncodeEventTime(one.MaxTimestamp(), w)
	return coder.EncodeStringUTF8(one.(namedWindow).name, w)
}

func (c namedWindowCoder) Decode(r io.Reader) ([]typex.Window, error) {
	n, err := coder.DecodeInt32(r)
	if err != nil {
		return nil, err
	}
	var ws []typex.Window
	for range n {
		w, err := c.DecodeSingle(r)
		if err != nil {
			return nil, err
		}
		ws = append(ws, w)
	}
	return ws, nil
}

func (namedWindowCoder) DecodeSingle(r io.Reader) (typex.Window, error) {
	end, err := coder.DecodeEventTime(r)
	if err != nil {
		return nil, err
	}
	// Not as a string: that fails in other ways where it is cut short.
	name, err := coder.DecodeBytes(r)
	return namedWindow{string(name), end}, err
}

// noWindowEncoder is for windows that are part of their coder.
type noWindowEncoder struct{}

func (noWindowEncoder) Encode([]typex.Window, io.Writer) error     { return nil }
func (noWindowEncoder) EncodeSingle(typex.Window, io.Writer) error { return nil }

// windowKind is a kind of window, its coder, and what makes random ones.
type windowKind struct {
	name   string
	dec    exec.WindowDecoder
	enc    exec.WindowEncoder
	random func(r *rand.Rand) typex.Window
	most   int // How many windows an element can be in.
}

func windowKinds() []windowKind {
	interval := func(r *rand.Rand) typex.Window {
		end := mtime.FromMilliseconds(r.Int64N(3) * 60_000)
		return window.IntervalWindow{Start: end - mtime.Time(1+r.Int64N(3)*1000), End: end}
	}
	fixed := window.IntervalWindow{Start: 0, End: 1000}
	var payload bytes.Buffer
	exec.MakeWindowEncoder(coder.NewIntervalWindow()).Encode([]typex.Window{fixed}, &payload)
	// The window is part of the coder, and so takes no bytes of the element.
	constant := &coder.WindowCoder{Kind: coder.IntervalWindow, Payload: payload.String()}
	return []windowKind{
		{"global", exec.MakeWindowDecoder(coder.NewGlobalWindow()), exec.MakeWindowEncoder(coder.NewGlobalWindow()),
			func(*rand.Rand) typex.Window { return window.GlobalWindow{} }, 1},
		{"interval", exec.MakeWindowDecoder(coder.NewIntervalWindow()), exec.MakeWindowEncoder(coder.NewIntervalWindow()), interval, 4},
		{"constant", exec.MakeWindowDecoder(constant), noWindowEncoder{},
			func(*rand.Rand) typex.Window { return fixed }, 1},
		{"named", namedWindowCoder{}, namedWindowCoder{}, func(r *rand.Rand) typex.Window {
			return namedWindow{[]string{"", "a", "ab", "b"}[r.IntN(4)], mtime.Time(r.IntN(2))}
		}, 3},
	}
}

// allPanes are panes of each timing and of each of their encodings.
func allPanes() []typex.PaneInfo {
	panes := []typex.PaneInfo{typex.NoFiringPane()}
	for _, timing := range []typex.PaneTiming{typex.PaneEarly, typex.PaneOnTime, typex.PaneLate, typex.PaneUnknown} {
		for _, index := range []int64{0, 1, 127, 128, 1 << 40} {
			for _, other := range []int64{-1, 0, 1, index} {
				for flags := range 4 {
					panes = append(panes, typex.PaneInfo{
						Timing: timing, IsFirst: flags&1 != 0, IsLast: flags&2 != 0, Index: index, NonSpeculativeIndex: other,
					})
				}
			}
		}
	}
	return panes
}

// prefixed reads bytes after their length, and returns both.
func prefixed(r io.Reader) []byte {
	var read bytes.Buffer
	coder.DecodeBytes(io.TeeReader(r, &read))
	return read.Bytes()
}

// pair reads two of them.
func pair(r io.Reader) []byte {
	return append(prefixed(r), prefixed(r)...)
}

func infoOf(kind windowKind, keyed bool) PColInfo {
	info := PColInfo{GlobalID: kind.name, WDec: kind.dec, WEnc: kind.enc, EDec: prefixed}
	if keyed {
		info.EDec, info.KeyDec = pair, prefixed
	}
	return info
}

// randomElement returns an encoded element of a collection.
func randomElement(r *rand.Rand, info PColInfo) []byte {
	var b []byte
	one := func() {
		n := r.IntN(5) * r.IntN(50)
		b = binary.AppendUvarint(b, uint64(n))
		for range n {
			b = append(b, byte(r.Uint32()))
		}
	}
	one()
	if info.KeyDec != nil {
		one()
	}
	return b
}

// randomChunk returns encoded elements with their headers.
func randomChunk(r *rand.Rand, kind windowKind, info PColInfo, elements int) []byte {
	panes := allPanes()
	var b bytes.Buffer
	var ws []typex.Window
	pane := typex.NoFiringPane()
	for range elements {
		// Often the same as before, as it mostly is.
		if r.IntN(3) == 0 || len(ws) == 0 {
			ws = nil
			for range 1 + r.IntN(kind.most) {
				ws = append(ws, kind.random(r))
			}
			if kind.most > 1 && r.IntN(200) == 0 {
				ws = ws[:0]
			}
		}
		if r.IntN(3) == 0 {
			pane = panes[r.IntN(len(panes))]
			if pane.Timing == typex.PaneEarly && pane.NonSpeculativeIndex != -1 {
				pane = typex.NoFiringPane()
			}
		}
		exec.EncodeWindowedValueHeader(info.WEnc, ws, mtime.Time(r.Int64N(1<<40)-1<<39), pane, &b)
		b.Write(randomElement(r, info))
	}
	return b.Bytes()
}

// decodedByReading decodes with the SDK's functions alone.
func decodedByReading(info PColInfo, data [][]byte, seq int) []element {
	var es []element
	for _, datum := range data {
		if len(datum) == 0 {
			panic("no data")
		}
		r := bytes.NewReader(datum)
		for {
			ws, timestamp, pane, err := exec.DecodeWindowedValueHeader(info.WDec, r)
			if err == io.EOF {
				break
			} else if err != nil {
				panic(err)
			}
			elm := element{timestamp: timestamp, pane: pane, elmBytes: info.EDec(r)}
			if info.KeyDec != nil {
				elm.keyBytes = info.KeyDec(bytes.NewReader(elm.elmBytes))
			}
			for _, w := range ws {
				elm.window = w
				elm.sequence = seq
				seq++
				es = append(es, elm)
			}
		}
	}
	return es
}

func attempt(decode func() []element) (es []element, panicked bool) {
	defer func() {
		panicked = recover() != nil
	}()
	return decode(), false
}

func checkDecoded(t *testing.T, info PColInfo, data ...[]byte) []element {
	t.Helper()
	stage := makeStageState("stage", []string{"in"}, []string{"out"}, nil)
	want, wantPanic := attempt(func() []element { return decodedByReading(info, data, 7) })
	var next int
	got, gotPanic := attempt(func() (es []element) {
		es, next = decodeOutput(stage, RunBundle{StageID: "stage", BundleID: "b"}, "out", info, data, 7)
		return es
	})
	if gotPanic != wantPanic {
		t.Fatalf("%v: %x panicked: %v, want %v", info.GlobalID, data, gotPanic, wantPanic)
	}
	if d := diffElements(got, want); d != "" {
		t.Fatalf("%v: %x was decoded otherwise: (-want +got)\n%v", info.GlobalID, data, d)
	}
	if !wantPanic && next != 7+len(want) {
		t.Fatalf("the next sequence is %v, want %v", next, 7+len(want))
	}
	return got
}

func forAllKinds(t *testing.T, run func(t *testing.T, r *rand.Rand, kind windowKind, info PColInfo)) {
	for _, kind := range windowKinds() {
		for _, keyed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/keyed=%v", kind.name, keyed), func(t *testing.T) {
				run(t, rand.New(rand.NewPCG(11, 12)), kind, infoOf(kind, keyed))
			})
		}
	}
}

func TestDecodesAsTheSDKDoes(t *testing.T) {
	forAllKinds(t, func(t *testing.T, r *rand.Rand, kind windowKind, info PColInfo) {
		for range 60 {
			var data [][]byte
			for range 1 + r.IntN(3) {
				data = append(data, randomChunk(r, kind, info, 1+r.IntN(40)))
			}
			checkDecoded(t, info, data...)
		}
	})
}

func TestDecodesWhatIsCutShort(t *testing.T) {
	forAllKinds(t, func(t *testing.T, r *rand.Rand, kind windowKind, info PColInfo) {
		for range 10 {
			chunk := randomChunk(r, kind, info, 1+r.IntN(3))
			for n := range chunk {
				checkDecoded(t, info, chunk[:n])
			}
		}
	})
}

func TestDecodesAllPanes(t *testing.T) {
	info := infoOf(windowKinds()[0], false)
	for first := range 256 {
		for _, more := range [][]byte{{}, {1, 2}, {0x81, 1, 0x82, 2}, bytes.Repeat([]byte{0xff}, 22)} {
			var b bytes.Buffer
			for range 2 {
				coder.EncodeEventTime(5, &b)
				info.WEnc.Encode(window.SingleGlobalWindow, &b)
				b.WriteByte(byte(first))
				b.Write(more)
				// An element of one byte, or what the pane does not take of it.
				b.Write([]byte{1, 1})
			}
			checkDecoded(t, info, b.Bytes())
			checkDecoded(t, info, b.Bytes()[:timestampSize+5+len(more)])
		}
	}
}

func TestDecodesNoEmptyChunk(t *testing.T) {
	forAllKinds(t, func(t *testing.T, r *rand.Rand, kind windowKind, info PColInfo) {
		if _, panicked := attempt(func() []element {
			es, _ := decodeOutput(makeStageState("s", nil, nil, nil), RunBundle{}, "out", info, [][]byte{{}}, 0)
			return es
		}); !panicked {
			t.Error("a chunk without data was taken")
		}
		checkDecoded(t, info, randomChunk(r, kind, info, 2), []byte{})
	})
}

func TestWindowsAreRemembered(t *testing.T) {
	kind := windowKinds()[1]
	info := infoOf(kind, false)
	var b bytes.Buffer
	one := []typex.Window{window.IntervalWindow{Start: 0, End: 1000}}
	two := []typex.Window{window.IntervalWindow{Start: 0, End: 1000}, window.IntervalWindow{Start: 1000, End: 2000}}
	var want []typex.Window
	for _, ws := range [][]typex.Window{one, one, two, two, one, two, {}, one, {}, {}, two} {
		exec.EncodeWindowedValueHeader(info.WEnc, ws, 1, typex.NoFiringPane(), &b)
		b.WriteByte(0)
		want = append(want, ws...)
	}
	var got []typex.Window
	for _, e := range checkDecoded(t, info, b.Bytes()) {
		got = append(got, e.window)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("other windows: (-want +got)\n%v", d)
	}
}

func TestElementsDoNotKeepTheirChunk(t *testing.T) {
	kind := windowKinds()[0]
	info := infoOf(kind, true)
	info.EDec = func(r io.Reader) []byte {
		return r.(*EncodedElements).Take(4)
	}
	info.KeyDec = func(r io.Reader) []byte {
		return r.(*EncodedElements).Take(2)
	}
	var b bytes.Buffer
	for i := range 10_000 {
		exec.EncodeWindowedValueHeader(info.WEnc, window.SingleGlobalWindow, 1, typex.NoFiringPane(), &b)
		b.Write([]byte{1, byte(i), 1, byte(i >> 8)})
	}
	chunk := b.Bytes()
	es, _ := decodeOutput(makeStageState("s", nil, nil, nil), RunBundle{}, "out", info, [][]byte{chunk}, 0)
	clear(chunk)
	for i, e := range es {
		if want := []byte{1, byte(i), 1, byte(i >> 8)}; !bytes.Equal(e.elmBytes, want) || cap(e.elmBytes) != 4 {
			t.Fatalf("element %v is %v of %v bytes, want %v", i, e.elmBytes, cap(e.elmBytes), want)
		}
		if &e.keyBytes[0] != &e.elmBytes[0] || cap(e.keyBytes) != 2 {
			t.Fatalf("the key of element %v is no part of it", i)
		}
	}
}

func TestTakingElements(t *testing.T) {
	data := make([]byte, 3*blockSize)
	for i := range data {
		data[i] = byte(i % 251)
	}
	for _, in := range []*EncodedElements{NewEncodedElements(data), NewSharedElements(data)} {
		at := 0
		for _, n := range []int{0, 1, blockSize - 1, 1, blockSize + 1, 7, 0, 300} {
			taken := in.Take(n)
			if !bytes.Equal(taken, data[at:at+n]) || cap(taken) != n || (taken == nil) != (n == 0) {
				t.Fatalf("%v bytes from %v on are not as they were", n, at)
			}
			if n > 0 && (&taken[0] == &data[at]) != in.shares {
				t.Fatalf("%v bytes from %v on: shared: %v", n, at, !in.shares)
			}
			if in.block != nil && cap(in.block) > max(n, blockSize) {
				t.Fatalf("a block of %v bytes for an element of %v", cap(in.block), n)
			}
			at += n
		}
		rest, err := io.ReadAll(in)
		if err != nil || !bytes.Equal(rest, data[at:]) {
			t.Fatalf("the rest is not as it was: %v", err)
		}
		if n, err := in.Read(nil); n != 0 || err != nil {
			t.Errorf("reading nothing gave %v, %v", n, err)
		}
		if n, err := in.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("reading at the end gave %v, %v", n, err)
		}
	}
	// A chunk of one small element takes no block of its own.
	small := NewEncodedElements([]byte{1, 2, 3})
	small.Take(2)
	if cap(small.block) > 8 {
		t.Errorf("a block of %v bytes for a chunk of 3", cap(small.block))
	}
}

func TestRoomForElements(t *testing.T) {
	for _, c := range []struct{ before, total, left, most, least int }{
		{0, 100, 90, 10, 9},
		{0, 1 << 30, 1<<30 - 1, 72, 60}, // A first small one tells little.
		{1000, 2000, 1000, 1001, 1000},
		{1000, 1 << 30, 1<<30 - 10, 8064, 8000},
		{5, 100, 0, 1, 1},
		{5, 0, 0, 1, 1},
	} {
		if got := elementsLeft(c.before, c.total, c.left); got > c.most || got < c.least {
			t.Errorf("elementsLeft(%v, %v, %v) = %v, want %v to %v", c.before, c.total, c.left, got, c.least, c.most)
		}
	}
}

// persisted commits a bundle of the stage "first" with a chunk of output, and
// returns the elements that the stage "second" has from it.
func persisted(info PColInfo, chunks ...[]byte) []element {
	em := NewElementManager(Config{})
	em.AddStage("first", []string{"in"}, []string{"out"}, nil)
	em.AddStage("second", []string{"out"}, nil, nil)
	em.addPending(1)
	em.stages["first"].inprogress = map[string]elements{"b": {es: make([]element, 1)}}
	em.PersistBundle(RunBundle{StageID: "first", BundleID: "b"}, map[string]PColInfo{"out": info},
		TentativeData{Raw: map[string][][]byte{"out": chunks}}, info, Residuals{})
	return em.stages["second"].pending
}

func TestBundlesAreDecodedWithoutReading(t *testing.T) {
	info := infoOf(windowKinds()[1], true)
	chunk := randomChunk(rand.New(rand.NewPCG(1, 1)), windowKinds()[1], info, 50)
	inMemory := 0
	decode := info.EDec
	info.EDec = func(r io.Reader) []byte {
		if _, ok := r.(*EncodedElements); ok {
			inMemory++
		}
		return decode(r)
	}
	got := persisted(info, chunk)
	if inMemory != 50 {
		t.Errorf("%v of 50 elements were decoded from memory", inMemory)
	}
	want := elementHeap(decodedByReading(infoOf(windowKinds()[1], true), [][]byte{chunk}, 0))
	if len(got) != len(want) {
		t.Errorf("%v elements are pending, want %v", len(got), len(want))
	}
	if _, panicked := attempt(func() []element { return persisted(info, chunk, []byte{}) }); !panicked {
		t.Error("a chunk without data was taken")
	}
}

func BenchmarkDecodeOutput(b *testing.B) {
	kind := windowKinds()[0]
	info := infoOf(kind, true)
	info.EDec = func(r io.Reader) []byte {
		in := r.(*EncodedElements)
		return in.Take(min(26, len(in.rest)))
	}
	info.KeyDec = func(r io.Reader) []byte {
		return r.(*EncodedElements).Take(6)
	}
	var chunk bytes.Buffer
	const number = 10_000
	for i := range number {
		exec.EncodeWindowedValueHeader(info.WEnc, window.SingleGlobalWindow, mtime.Time(i), typex.NoFiringPane(), &chunk)
		chunk.Write(make([]byte, 26))
	}
	stage := makeStageState("s", nil, nil, nil)
	b.ReportAllocs()
	for b.Loop() {
		decodeOutput(stage, RunBundle{}, "out", info, [][]byte{chunk.Bytes()}, 0)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*number), "ns/element")
}
