// Package storetest shows whether a [changefeed.Store] keeps its contract, and whether
// elections on it do.
//
//	func TestStore(t *testing.T) {
//		backend := func(t testing.TB) *storetest.Backend {
//			key := newKey() // a place that no other case uses
//			return &storetest.Backend{
//				New:  func(t testing.TB) changefeed.Store { return mystore.New(conn, key) },
//				Lose: func(t testing.TB) { conn.Delete(key) },
//			}
//		}
//		storetest.Run(t, backend)
//		storetest.RunElection(t, backend)
//	}
//
// [Run] calls the methods of stores, one case after the other, each on a backend of its
// own. [RunElection] holds elections. Feeds may be late, repeat what they told and leave
// states out, as the contract says; what they tell last must be what was written last.
//
// What no suite can see is whether an acknowledged write survives a failure of the
// servers. Restart, where it is given, looks at one.
package storetest
