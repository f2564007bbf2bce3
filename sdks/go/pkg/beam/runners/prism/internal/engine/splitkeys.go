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

// keepKeys notes that a bundle that was split still has the keys of what it
// kept. Were one of them free, a second bundle of that key could run beside
// the first; each would write back the state that it began with.
//
// Callers must hold the lock of the stage.
func (ss *stageState) keepKeys(rb RunBundle, kept []element) {
	keys := ss.inprogressKeysByBundle[rb.BundleID]
	if keys == nil {
		return // Not keyed.
	}
	for i := range kept {
		key := string(kept[i].keyBytes)
		keys.insert(key)
		ss.inprogressKeys.insert(key)
	}
}
