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

package jobservices

import (
	"math"
	"strings"
)

// UnknownProgress is the entry of a progress report that is above zero where
// the SDK reported a fraction of work that is not a number.
const UnknownProgress = "unknownProgress"

// Both the work that is completed and the work that remains begin with this.
const progressURN = "beam:metric:ptransform_progress:"

// reportUnknownProgress adds to a report whether the SDK knows how far its
// bundle is. Metrics whose meaning is not known yet come again with the next
// report.
//
// Callers must hold the lock of the store.
func (m *metricsStore) reportUnknownProgress(report map[string]int64, payloads map[string][]byte) {
	for short, payload := range payloads {
		key, ok := m.shortIDsToKeys[short]
		if !ok || !strings.HasPrefix(key.Urn(), progressURN) {
			continue
		}
		var p progress
		if err := p.accumulate(payload); err != nil {
			report[UnknownProgress]++
			continue
		}
		for _, work := range p.snap {
			if math.IsNaN(work) {
				report[UnknownProgress]++
			}
		}
	}
}
