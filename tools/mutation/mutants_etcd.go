package main

// etcdMutants break rules of elections on etcd.
var etcdMutants = []mutant{
	{
		name: "etcd/revoke", breaks: "the leadership ends after the lease was revoked",
		file: "adapters/etcd/entry.go",
		edits: []edit{
			{"	e.candidacy.Revoke(err) // end the leadership before the lease is revoked\n", ""},
		},
		tests: "./adapters/etcd -run TestResign_EndsLeadershipBeforeRevocation",
	},
	{
		name: "etcd/own-lease", breaks: "a candidate does not notice that its key is not attached to its lease any more",
		file: "adapters/etcd/queue.go",
		edits: []edit{
			{" && clientv3.LeaseID(kv.Lease) == k.lease", ""},
		},
		tests: "./adapters/etcd -run TestLeader_StopsIfKeyIsDetachedFromLease$",
	},
	{
		name: "etcd/guard-lease", breaks: "transactions are applied after the key was detached from the lease",
		file: "adapters/etcd/txn.go",
		edits: []edit{
			{"		clientv3.Compare(clientv3.LeaseValue(id), \"=\", namedLease(e.node, id)),\n", ""},
		},
		tests: "./adapters/etcd -run TestLeader_StopsIfKeyIsDetachedFromLease$",
	},
	{
		name: "etcd/detached-lease", breaks: "a candidate does not wait for the lease of a key that is detached from it",
		file: "adapters/etcd/queue.go",
		edits: []edit{
			{"!attached && lease != 0 {", "false && !attached && lease != 0 {"},
		},
		tests: "./adapters/etcd -run TestLeader_StopsBeforeNextIfKeyIsDetachedWhileCutOff",
	},
	{
		name: "etcd/detached-key", breaks: "a candidate does not delete its key after it was detached from the lease",
		file: "adapters/etcd/resign.go",
		edits: []edit{
			{"if detached && err == nil {", "if false && detached && err == nil {"},
		},
		tests: "./adapters/etcd -run TestLeader_StopsIfKeyIsDetachedFromLease$",
	},
	{
		name: "etcd/next", breaks: "a candidate behind two others is next",
		file: "adapters/etcd/queue.go",
		edits: []edit{
			{"v.next = complete && i == len(earlierKeys)-1", "v.next = i >= 0"},
		},
		tests: "./adapters/etcd -run ^TestElection_NextIsTrueOnlyForSecondCandidate$",
	},
	{
		name: "etcd/stream", breaks: "each keepalive opens a stream, and authenticates",
		file: "adapters/etcd/request.go",
		edits: []edit{
			{"		if r.err != nil {\n			s.close()", "		if true {\n			s.close()"},
		},
		tests: "./adapters/etcd -run TestKeepalive_DoesNotAuthenticateAgain",
	},
	{
		name: "etcd/sent", breaks: "a lease is measured from when the response was received",
		file: "adapters/etcd/request.go",
		edits: []edit{
			{"	r.took = time.Since(r.keepalive.sent)\n", "	r.took, r.keepalive.sent = time.Since(r.keepalive.sent), time.Now()\n"},
		},
		tests: "./adapters/etcd -run TestLease_IsMeasuredFromSending",
	},
	{
		name: "etcd/cluster", breaks: "the data of another cluster counts as a continuation",
		file: "adapters/etcd/position.go",
		edits: []edit{
			{"p.cluster != known.cluster || ", ""},
		},
		tests: "./adapters/etcd -run TestPosition_RecognizesLostData",
	},
	{
		name: "etcd/lost-data", breaks: "a candidate waits for revisions that etcd has lost",
		file: "adapters/etcd/entry.go",
		edits: []edit{
			{"	if v.lostSince(r.known) {", "	if false && v.lostSince(r.known) {"},
		},
		tests: "./adapters/etcd -run TestElection_ContinuesAfterDataLoss/Restored$",
	},
	{
		name: "etcd/lost-data-wait", breaks: "a candidate leads while the leader cannot know that etcd has lost data",
		file: "adapters/etcd/election.go",
		edits: []edit{
			{"	if sole || !lost && ", "	if sole || lost || "},
		},
		tests: "./adapters/etcd -run TestElection_ContinuesAfterDataLoss/EmptiedWhileCutOff",
	},
	{
		name: "etcd/lost-data-expired", breaks: "a former leader leads while its successor cannot know that etcd has lost data",
		file: "adapters/etcd/entry.go",
		edits: []edit{
			{"	sole = n.head && !n.lease.hasExpired(time.Now())\n", "	sole = n.head\n"},
		},
		tests: "./adapters/etcd -run TestElection_ContinuesAfterDataLoss/RestoredWhileSuccessorCutOff",
	},
	{
		name: "etcd/lost-data-granted", breaks: "after a loss of data a candidate waits for the TTL that it requested, which is shorter than the granted one",
		file: "adapters/etcd/join.go",
		edits: []edit{
			{"			e.ttl = max(e.ttl, n.lease.ttl)\n", ""},
		},
		tests: "./adapters/etcd -run TestElection_ContinuesAfterDataLoss/EmptiedWhileCutOff",
	},
	{
		name: "etcd/ended-early", breaks: "a candidate whose lease has ended before its TTL leads at once",
		file: "adapters/etcd/entry.go",
		edits: []edit{
			{"		reason = errEndedEarly\n", ""},
		},
		tests: "./adapters/etcd -run TestElection_RevokedLeaseDelaysNextLeader",
	},
	{
		name: "etcd/rejected", breaks: "a rejected read ends the candidacy",
		file: "adapters/etcd/entry.go",
		edits: []edit{
			{"		err, next = rejected, now.Add(max(n.lease.ttl/16, rejectedPause))\n", "		return rejected\n"},
		},
		tests: "./adapters/etcd -run TestElection_ContinuesAfterAccessIsRevokedBriefly/Password",
	},
	{
		name: "etcd/unread", breaks: "a candidate that cannot read the queue blocks the others",
		file: "adapters/etcd/entry.go",
		edits: []edit{
			{"	if n.lease.acknowledged.sent.Sub(n.unreadSince) > n.lease.ttl {", "	if false {"},
		},
		tests: "./adapters/etcd -run TestElection_RejoinsIfReadsFail/Failed",
	},
}
