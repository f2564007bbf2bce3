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
	"log/slog"
	"math"
	"slices"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/coder"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/exec"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/typex"
)

// headerDecoder decodes what stands before each element: its timestamp, its
// windows and its pane.
//
// Most elements are in the windows of the one before them. So the windows and
// their encoding are remembered, and decoded again only where that differs. As
// no encoding of windows begins with another one, where it is the same, so are
// they.
type headerDecoder struct {
	dec exec.WindowDecoder

	windows []typex.Window
	encoded []byte // Of the windows, and nil if there are none yet.
}

const timestampSize = 8

// next takes a header off the elements. The windows are not to be changed.
//
// It fails just where exec.DecodeWindowedValueHeader does, with io.EOF if the
// elements end within the header.
func (d *headerDecoder) next(in *EncodedElements) ([]typex.Window, mtime.Time, typex.PaneInfo, error) {
	front := in.rest
	if len(front) < timestampSize {
		return nil, 0, typex.PaneInfo{}, io.EOF
	}
	timestamp := mtime.Time(int64(binary.BigEndian.Uint64(front)) + math.MinInt64)
	in.rest = front[timestampSize:]

	if d.encoded != nil && bytes.HasPrefix(in.rest, d.encoded) {
		in.rest = in.rest[len(d.encoded):]
	} else {
		front = in.rest
		windows, err := d.dec.Decode(in)
		if err != nil {
			return nil, 0, typex.PaneInfo{}, err
		}
		d.windows = windows
		d.encoded = front[:len(front)-len(in.rest)]
	}

	// Nearly all panes are a single byte.
	if len(in.rest) > 0 && in.rest[0]>>4 == 0 {
		pane := coder.NewPane(in.rest[0])
		in.rest = in.rest[1:]
		return d.windows, timestamp, pane, nil
	}
	pane, err := coder.DecodePane(in)
	return d.windows, timestamp, pane, err
}

// decodeOutput turns the chunks that a bundle wrote to an output into elements,
// one for each window. Their sequence goes on from seq, and what comes next is
// returned too.
//
// It panics if the data cannot be that of elements.
func decodeOutput(stage *stageState, rb RunBundle, output string, info PColInfo, data [][]byte, seq int) ([]element, int) {
	var decoded []element
	header := headerDecoder{dec: info.WDec}
	key := NewSharedElements(nil)
	for _, datum := range data {
		if len(datum) == 0 {
			panic(fmt.Sprintf("output %v of %v: a chunk of data is empty", output, rb.BundleID))
		}
		in := NewEncodedElements(datum)
		first := len(decoded)
		for {
			windows, timestamp, pane, err := header.next(in)
			if err == io.EOF {
				break
			}
			if err != nil {
				slog.Error("PersistBundle: cannot decode an element's header", "error", err, "bundle", rb, slog.String("output", output))
				panic(fmt.Sprintf("output %v of %v: cannot decode an element's header: %v", output, rb.BundleID, err))
			}
			if len(windows) == 0 {
				slog.Warn("PersistBundle: an element is in no window", "bundle", rb, slog.String("output", output))
			}
			elmBytes := info.EDec(in)
			var keyBytes []byte
			if info.KeyDec != nil {
				key.rest = elmBytes
				keyBytes = info.KeyDec(key)
			}
			if len(decoded)+len(windows) > cap(decoded) {
				decoded = slices.Grow(decoded, len(windows)+elementsLeft(len(decoded)-first, len(datum), len(in.rest)))
			}
			for _, w := range windows {
				decoded = append(decoded, element{
					window:    w,
					timestamp: timestamp,
					pane:      stage.kind.getPaneOrDefault(stage, pane, w, keyBytes, rb.BundleID),
					elmBytes:  elmBytes,
					keyBytes:  keyBytes,
					sequence:  seq,
				})
				seq++
			}
		}
	}
	return decoded, seq
}

// elementsLeft guesses how many elements are in what is left of a chunk, by
// those that were before it. It guesses no more than eight times as many.
func elementsLeft(before, total, left int) int {
	if before == 0 {
		// The one at hand is the first.
		before = 1
	}
	return min(int(int64(before)*int64(left)/int64(max(total-left, 1)))+1, 8*before+64)
}
