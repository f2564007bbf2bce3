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

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/coder"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/exec"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/typex"
)

// headerSize is about what a header takes: a timestamp, an interval window and
// a pane.
const headerSize = 32

// encoder encodes elements and timers for an SDK, one after the other.
//
// Most are in the window and pane of the one before them, whose encoding is
// then copied.
type encoder struct {
	enc exec.WindowEncoder
	buf []byte

	window  []typex.Window // One, or none if nothing is encoded yet.
	pane    typex.PaneInfo
	encoded []byte // The window and the pane.
}

// newEncoder returns an encoder with room for the elements.
func newEncoder(info PColInfo, es []element) *encoder {
	size := 0
	for i := range es {
		size += headerSize + len(es[i].elmBytes)
	}
	return &encoder{enc: info.WEnc, buf: make([]byte, 0, size)}
}

// Write adds bytes to what is encoded, for the functions of package coder.
func (e *encoder) Write(p []byte) (int, error) {
	e.buf = append(e.buf, p...)
	return len(p), nil
}

// data adds an element after its windowed value header.
func (e *encoder) data(elm *element) {
	coder.EncodeEventTime(elm.timestamp, e)
	if len(e.window) == 0 || e.pane != elm.pane || !e.window[0].Equals(elm.window) {
		e.window = []typex.Window{elm.window}
		e.pane = elm.pane
		start := len(e.buf)
		e.enc.Encode(e.window, e)
		coder.EncodePane(elm.pane, e)
		e.encoded = e.buf[start:len(e.buf):len(e.buf)]
	} else {
		e.buf = append(e.buf, e.encoded...)
	}
	e.buf = append(e.buf, elm.elmBytes...)
}

// timer adds a timer that is set.
func (e *encoder) timer(elm *element) {
	e.buf = append(e.buf, elm.keyBytes...) // With their length, if they have it.
	coder.EncodeVarInt(int64(len(elm.tag)), e)
	e.buf = append(e.buf, elm.tag...)
	e.enc.Encode([]typex.Window{elm.window}, e)
	e.buf = append(e.buf, 0) // It is not cleared.
	coder.EncodeEventTime(elm.timestamp, e)
	coder.EncodeEventTime(elm.holdTimestamp, e)
	coder.EncodePane(elm.pane, e)
}

// encodeEach encodes elements, each of them to bytes of its own.
func encodeEach(info PColInfo, es []element) [][]byte {
	if len(es) == 0 {
		return nil
	}
	ret := make([][]byte, len(es))
	e := newEncoder(info, es)
	for i := range es {
		start := len(e.buf)
		e.data(&es[i])
		ret[i] = e.buf[start:len(e.buf):len(e.buf)]
	}
	return ret
}

// encodeBlocks encodes the elements and timers of a bundle in their order, and
// counts the elements that are no timers.
//
// A block has all the data until the next timer, or all timers of a family
// until what is none of it. Its bytes are one slice.
func encodeBlocks(info PColInfo, es []element) ([]*Block, int) {
	var blocks []*Block
	var cur *Block
	data, start := 0, 0
	e := newEncoder(info, es)
	cut := func() {
		if cur != nil {
			cur.Bytes = [][]byte{e.buf[start:len(e.buf):len(e.buf)]}
		}
		start = len(e.buf)
	}
	for i := range es {
		elm := &es[i]
		kind := BlockData
		if elm.IsTimer() {
			kind = BlockTimer
		}
		// Data is in no family.
		if cur == nil || cur.Kind != kind || kind == BlockTimer && (cur.Transform != elm.transform || cur.Family != elm.family) {
			cut()
			cur = &Block{Kind: kind}
			if kind == BlockTimer {
				cur.Transform, cur.Family = elm.transform, elm.family
			}
			blocks = append(blocks, cur)
		}
		if elm.IsTimer() {
			e.timer(elm)
		} else {
			e.data(elm)
			data++
		}
	}
	cut()
	return blocks, data
}

// inputBlocks encodes all that a bundle of the stage has in progress.
func (ss *stageState) inputBlocks(bundleID string, info PColInfo) ([]*Block, int) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return encodeBlocks(info, ss.inprogress[bundleID].es)
}

// Joined returns the block's bytes as one slice, which is not to be changed.
func (b *Block) Joined() []byte {
	if len(b.Bytes) == 1 {
		return b.Bytes[0]
	}
	return bytes.Join(b.Bytes, nil)
}
