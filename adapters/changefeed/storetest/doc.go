// Package storetest tests whether a [changefeed.Store] conforms to the contract, and
// whether elections on it do.
//
//	func TestStore(t *testing.T) {
//		backend := func(t testing.TB) *storetest.Backend {
//			key := newKey() // a key that no other case uses
//			return &storetest.Backend{
//				New:  func(t testing.TB) changefeed.Store { return mystore.NewStore(conn, key) },
//				Lose: func(t testing.TB) { conn.Delete(key) },
//			}
//		}
//		storetest.Run(t, backend)
//		storetest.RunElection(t, backend)
//	}
//
// [Run] calls the methods of stores. Its cases run one after the other, each on a
// separate backend. [RunElection] runs elections, and [RunPartitions] runs an election whose
// leaders are cut off from the server. As the contract permits, feeds may deliver events late,
// repeat them and skip states, but they must finally deliver the last write.
//
// A test suite cannot verify that acknowledged writes survive every failure of the
// servers. If Restart is set, the suite tests one such failure.
//
// [Faulty] injects faults into the requests and feeds of any store.
package storetest
