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
	"io"
)

// blockSize is how much memory an element can keep alive that is not its own.
const blockSize = 32 << 10

// EncodedElements reads encoded elements, one after the other, from the front
// of a slice that nobody writes to any more.
//
// Like a bytes.Buffer it is an io.Reader for coders. What knows the length of
// an encoding can take it whole instead, without reading it.
type EncodedElements struct {
	rest []byte

	shares bool   // What is taken is part of the slice itself.
	block  []byte // Otherwise, it is copied to the end of this.
}

// NewEncodedElements returns what reads elements that are to be kept.
//
// A chunk of output can hold megabytes, and one of its elements can be pending
// for long after the others are gone. So what is taken is copied out of the
// chunk, into blocks that it shares with little else.
func NewEncodedElements(data []byte) *EncodedElements {
	return &EncodedElements{rest: data}
}

// NewSharedElements returns what reads elements that are not kept for longer
// than the data is: what is taken is part of it.
func NewSharedElements(data []byte) *EncodedElements {
	return &EncodedElements{rest: data, shares: true}
}

// Read gives bytes as a bytes.Buffer does.
func (in *EncodedElements) Read(p []byte) (int, error) {
	if len(in.rest) == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

// Rest returns all that is not yet read. It is not to be kept.
func (in *EncodedElements) Rest() []byte {
	return in.rest
}

// Take returns the next n bytes. It is nil if n is zero.
func (in *EncodedElements) Take(n int) []byte {
	if n == 0 {
		return nil
	}
	taken := in.rest[:n:n]
	if !in.shares {
		if n > cap(in.block)-len(in.block) {
			in.block = make([]byte, 0, max(n, min(blockSize, len(in.rest))))
		}
		start := len(in.block)
		in.block = append(in.block, taken...)
		taken = in.block[start:len(in.block):len(in.block)]
	}
	in.rest = in.rest[n:]
	return taken
}
