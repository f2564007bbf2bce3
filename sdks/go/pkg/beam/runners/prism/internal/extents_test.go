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
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism/internal/engine"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism/internal/urns"
)

// plainReader hides that bytes are in memory, so that coders must read them.
type plainReader struct {
	io.Reader
}

// madeCoder is a coder of random shape and what encodes random values with it.
type madeCoder struct {
	id     string
	encode func() []byte
	// Whether it has a count, which must not become so large that to read on
	// beyond the end takes minutes.
	counts bool
}

// coderMaker makes coders of all kinds that pullDecoder knows.
type coderMaker struct {
	*rand.Rand
	coders map[string]*pipepb.Coder
}

func (m *coderMaker) add(urn string, parts ...string) string {
	id := fmt.Sprintf("c%d", len(m.coders))
	m.coders[id] = &pipepb.Coder{Spec: &pipepb.FunctionSpec{Urn: urn}, ComponentCoderIds: parts}
	return id
}

func (m *coderMaker) random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(m.Uint32())
	}
	return b
}

func (m *coderMaker) prefixed() []byte {
	n := m.IntN(4) * m.IntN(100)
	return append(binary.AppendUvarint(nil, uint64(n)), m.random(n)...)
}

func (m *coderMaker) make(depth int) madeCoder {
	kinds := 9
	if depth == 0 {
		kinds = 6
	}
	switch m.IntN(kinds) {
	case 0:
		return madeCoder{id: m.add(urns.CoderBytes), encode: m.prefixed}
	case 1:
		return madeCoder{id: m.add(urns.CoderStringUTF8), encode: m.prefixed}
	case 2:
		return madeCoder{id: m.add(urns.CoderLengthPrefix), encode: m.prefixed}
	case 3:
		return madeCoder{id: m.add(urns.CoderVarInt), encode: func() []byte {
			return binary.AppendUvarint(nil, m.Uint64()>>m.IntN(64))
		}}
	case 4:
		return madeCoder{id: m.add(urns.CoderBool), encode: func() []byte { return []byte{byte(m.IntN(2))} }}
	case 5:
		return madeCoder{id: m.add(urns.CoderDouble), encode: func() []byte { return m.random(8) }}
	case 6:
		part := m.make(depth - 1)
		return madeCoder{m.add(urns.CoderNullable, part.id), func() []byte {
			if m.IntN(2) == 0 {
				return []byte{0}
			}
			return append([]byte{1}, part.encode()...)
		}, part.counts}
	case 7:
		part := m.make(depth - 1)
		return madeCoder{m.add(urns.CoderIterable, part.id), func() []byte {
			n := m.IntN(4)
			b := binary.BigEndian.AppendUint32(nil, uint32(n))
			for range n {
				b = append(b, part.encode()...)
			}
			return b
		}, true}
	default:
		one, two := m.make(depth-1), m.make(depth-1)
		urn := []string{urns.CoderKV, urns.CoderWindowedValue}[m.IntN(2)]
		return madeCoder{m.add(urn, one.id, two.id), func() []byte {
			return append(one.encode(), two.encode()...)
		}, one.counts || two.counts}
	}
}

// taken is what a decoder made of some bytes.
type taken struct {
	element  []byte
	rest     []byte
	panicked bool
}

func (t taken) equal(o taken) bool {
	if t.panicked || o.panicked {
		return t.panicked == o.panicked
	}
	// An element is a timer if it is nil.
	return bytes.Equal(t.element, o.element) && (t.element == nil) == (o.element == nil) && bytes.Equal(t.rest, o.rest)
}

func take(dec func(io.Reader) []byte, r io.Reader) (ret taken) {
	defer func() {
		ret.panicked = recover() != nil
	}()
	ret.element = dec(r)
	ret.rest, _ = io.ReadAll(r)
	return ret
}

// checkExtent holds all ways to take an element off some bytes against reading
// it with its decoder.
func checkExtent(t *testing.T, made *pipepb.Coder, coders map[string]*pipepb.Coder, b []byte) {
	t.Helper()
	dec := pullDecoder(made, coders)
	want := take(dec, plainReader{bytes.NewReader(b)})
	before := bytes.Clone(b)
	for name, r := range map[string]io.Reader{
		"elements": engine.NewEncodedElements(b),
		"shared":   engine.NewSharedElements(b),
		"buffer":   bytes.NewBuffer(b),
	} {
		if got := take(dec, r); !got.equal(want) {
			t.Fatalf("%v of %v: %x was taken as %+v, but it is %+v", name, debugCoders(made, coders), b, got, want)
		}
	}
	if !bytes.Equal(b, before) {
		t.Fatalf("%v: %x became %x", debugCoders(made, coders), before, b)
	}
}

func debugCoders(c *pipepb.Coder, coders map[string]*pipepb.Coder) string {
	s := c.GetSpec().GetUrn()
	for _, id := range c.GetComponentCoderIds() {
		s += "(" + debugCoders(coders[id], coders) + ")"
	}
	return s
}

func TestExtentsAreThoseOfTheDecoders(t *testing.T) {
	for seed := range uint64(400) {
		m := &coderMaker{rand.New(rand.NewPCG(seed, 6)), map[string]*pipepb.Coder{}}
		made := m.make(3)
		c := m.coders[made.id]
		for range 5 {
			encoded := made.encode()
			checkExtent(t, c, m.coders, append(bytes.Clone(encoded), m.random(m.IntN(3))...))
			// Cut short, there is no telling what it means, but it must mean the
			// same.
			for n := range min(len(encoded), 40) {
				checkExtent(t, c, m.coders, encoded[:n])
			}
			checkExtent(t, c, m.coders, encoded[:len(encoded)-min(len(encoded), 1)])
			if made.counts || len(encoded) == 0 {
				continue
			}
			for range 5 {
				// Only small bytes: a decoder makes room for lengths of terabytes.
				spoiled := bytes.Clone(encoded)
				for i := range spoiled {
					spoiled[i] &= 0x7f
				}
				spoiled[m.IntN(len(spoiled))] = byte(m.IntN(128))
				checkExtent(t, c, m.coders, spoiled)
			}
		}
	}
}

func TestExtentOfCounts(t *testing.T) {
	m := &coderMaker{rand.New(rand.NewPCG(1, 2)), map[string]*pipepb.Coder{}}
	number := m.add(urns.CoderVarInt)
	c := m.coders[m.add(urns.CoderIterable, number)]
	for _, b := range [][]byte{
		{0, 0, 0, 2, 1, 2, 3},
		{0, 0, 100, 0, 1, 2, 3},            // More than there are.
		{0xff, 0xff, 0xff, 0xff, 1, 2, 3},  // A length that is not known.
		{0x80, 0, 0, 0, 1, 2, 3},           // The least of all.
		{0, 0, 0, 3, 0xff, 0xff, 1, 5, 80}, // Three in five bytes.
		{0, 0, 0},
		{},
	} {
		checkExtent(t, c, m.coders, b)
	}
}

func TestExtentOfNumbers(t *testing.T) {
	m := &coderMaker{rand.New(rand.NewPCG(3, 4)), map[string]*pipepb.Coder{}}
	number := m.coders[m.add(urns.CoderVarInt)]
	for _, last := range []byte{0, 1, 2, 0x7f, 0x80, 0x81, 0x82, 0xff} {
		for n := range 13 {
			b := append(bytes.Repeat([]byte{0xff}, n), last)
			checkExtent(t, number, m.coders, append(b, 1, 2, 3))
			checkExtent(t, number, m.coders, b)
		}
	}
	for range 2000 {
		checkExtent(t, number, m.coders, m.random(m.IntN(14)))
	}
}

func TestExtentOfLengthsThatCannotBe(t *testing.T) {
	m := &coderMaker{rand.New(rand.NewPCG(5, 6)), map[string]*pipepb.Coder{}}
	prefixed := m.coders[m.add(urns.CoderBytes)]
	// One that is negative, and one that is too long to be a length.
	checkExtent(t, prefixed, m.coders, append(binary.AppendUvarint(nil, 1<<63+5), 1, 2))
	checkExtent(t, prefixed, m.coders, append(bytes.Repeat([]byte{0xff}, 10), 1, 2))
	if got := take(pullDecoder(prefixed, m.coders), bytes.NewBuffer(binary.AppendUvarint(nil, 1<<63+5))); !got.panicked {
		t.Errorf("a negative length gave %+v", got)
	}
}

func TestTakingAllocatesLittle(t *testing.T) {
	m := &coderMaker{rand.New(rand.NewPCG(7, 8)), map[string]*pipepb.Coder{}}
	c := m.coders[m.add(urns.CoderKV, m.add(urns.CoderBytes), m.add(urns.CoderLengthPrefix))]
	dec := pullDecoder(c, m.coders)
	var data []byte
	const elements = 1000
	for range elements {
		data = append(data, 3, 'k', 'e', 'y', 2, 'v', 'w')
	}
	allocations := testing.AllocsPerRun(10, func() {
		in := engine.NewEncodedElements(data)
		for len(in.Rest()) > 0 {
			dec(in)
		}
	})
	if allocations > elements/100 {
		t.Errorf("%v allocations for %v elements", allocations, elements)
	}
	allocations = testing.AllocsPerRun(10, func() {
		in := bytes.NewBuffer(data)
		for in.Len() > 0 {
			dec(in)
		}
	})
	if allocations > elements+elements/100 {
		t.Errorf("%v allocations for %v elements of a buffer", allocations, elements)
	}
}

func TestDecoderOfNoKnownCoder(t *testing.T) {
	unknown := &pipepb.Coder{Spec: &pipepb.FunctionSpec{Urn: "beam:coder:of_tomorrow:v1"}}
	if size := extentOf(unknown, nil); size != nil {
		t.Error("the extent of a coder that nobody knows is known")
	}
	coders := map[string]*pipepb.Coder{"u": unknown}
	both := &pipepb.Coder{Spec: &pipepb.FunctionSpec{Urn: urns.CoderKV}, ComponentCoderIds: []string{"u", "u"}}
	if size := extentOf(both, coders); size != nil {
		t.Error("the extent of two coders that nobody knows is known")
	}
	if _, ok := takeFront(bytes.NewBuffer([]byte{1}), nil); ok {
		t.Error("something was taken without knowing how much")
	}
	if _, ok := takeFront(plainReader{bytes.NewBuffer([]byte{1})}, fixedExtent(1)); ok {
		t.Error("something was taken off a reader that has nothing in memory")
	}
}
