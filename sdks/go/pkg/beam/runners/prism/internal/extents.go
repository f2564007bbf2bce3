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
	"io"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism/internal/engine"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism/internal/urns"
)

// extent tells how many bytes an encoding has, at the front of others.
//
// Prism passes on most elements as they are, so all that it needs of a coder is
// where an element ends. An encoding that is cut short ends with the bytes, and
// one that makes no sense ends where its decoder gives up.
type extent func([]byte) int

// extentOf returns the extent of a coder, or nil for one that is not known. It
// knows the coders that pullDecoder knows.
func extentOf(c *pipepb.Coder, coders map[string]*pipepb.Coder) extent {
	var parts []extent
	switch c.GetSpec().GetUrn() {
	case urns.CoderNullable, urns.CoderIterable, urns.CoderKV, urns.CoderWindowedValue:
		for _, id := range c.GetComponentCoderIds() {
			part := extentOf(coders[id], coders)
			if part == nil {
				return nil
			}
			parts = append(parts, part)
		}
	}

	switch c.GetSpec().GetUrn() {
	case urns.CoderBytes, urns.CoderStringUTF8, urns.CoderLengthPrefix:
		return prefixedExtent
	case urns.CoderVarInt:
		return func(b []byte) int {
			_, n := varint(b)
			return n
		}
	case urns.CoderBool:
		return fixedExtent(1)
	case urns.CoderDouble:
		return fixedExtent(8)
	case urns.CoderNullable:
		return func(b []byte) int {
			if len(b) == 0 || b[0] == 0 {
				return min(len(b), 1)
			}
			return 1 + parts[0](b[1:])
		}
	case urns.CoderIterable:
		return func(b []byte) int {
			if len(b) < 4 {
				return len(b)
			}
			n := 4
			// With nothing left, there is nothing that more elements could take.
			for count := int32(binary.BigEndian.Uint32(b)); count > 0 && n < len(b); count-- {
				n += parts[0](b[n:])
			}
			return n
		}
	case urns.CoderKV, urns.CoderWindowedValue:
		return func(b []byte) int {
			n := parts[0](b)
			return n + parts[1](b[n:])
		}
	}
	return nil
}

func fixedExtent(size int) extent {
	return func(b []byte) int {
		return min(len(b), size)
	}
}

func prefixedExtent(b []byte) int {
	length, n := varint(b)
	if length < 0 {
		panic("a length is negative")
	}
	return n + int(min(length, int64(len(b)-n)))
}

// varint decodes a variable length integer and tells how many bytes it has.
// One that is cut short or too long counts as zero.
func varint(b []byte) (int64, int) {
	var value uint64
	for n, next := range b {
		bits := uint64(next & 0x7f)
		if n > 9 || n == 9 && bits > 1 {
			return 0, n + 1
		}
		value |= bits << (7 * n)
		if next < 0x80 {
			return int64(value), n + 1
		}
	}
	return 0, len(b)
}

// takeFront takes an encoding off a reader whose bytes are in memory, without
// decoding it. It is false for other readers, and if the extent is not known.
func takeFront(r io.Reader, size extent) ([]byte, bool) {
	if size == nil {
		return nil, false
	}
	switch in := r.(type) {
	case *engine.EncodedElements:
		return in.Take(size(in.Rest())), true
	case *bytes.Buffer:
		// Its memory may be used again, or be needed for nothing else.
		return append([]byte(nil), in.Next(size(in.Bytes()))...), true
	}
	return nil, false
}
