package main

// etcdMutants break rules of elections on etcd.
var etcdMutants = []mutant{
	{
		name: "etcd/revoke", breaks: "the leadership ends after the lease was revoked",
		file: "adapters/etcd/entry.go",
		edits: []edit{
			{"	e.candidacy.Revoke(err) // before the lease is revoked\n", ""},
		},
		tests: "./adapters/etcd -run TestResign_EndsLeadershipBeforeRevocation",
	},
	{
		name: "etcd/own-lease", breaks: "a candidate does not notice that its key is not attached to its lease any more",
		file: "adapters/etcd/queue.go",
		edits: []edit{
			{" && clientv3.LeaseID(kv.Lease) == k.lease", ""},
		},
		tests: "./adapters/etcd -run TestLeader_KeyDetached$",
	},
	{
		name: "etcd/guard-lease", breaks: "transactions are applied after the key was detached from the lease",
		file: "adapters/etcd/txn.go",
		edits: []edit{
			{"		clientv3.Compare(clientv3.LeaseValue(id), \"=\", namedLease(e.node, id)),\n", ""},
		},
		tests: "./adapters/etcd -run TestLeader_KeyDetached$",
	},
	{
		name: "etcd/detached-lease", breaks: "a candidate does not wait for the lease of a key that is detached from it",
		file: "adapters/etcd/queue.go",
		edits: []edit{
			{"!attached && lease != 0 {", "false && !attached && lease != 0 {"},
		},
		tests: "./adapters/etcd -run TestLeader_KeyDetachedWhileCutOff",
	},
	{
		name: "etcd/detached-key", breaks: "a candidate does not delete its key after it was detached from the lease",
		file: "adapters/etcd/resign.go",
		edits: []edit{
			{"if detached && err == nil {", "if false && detached && err == nil {"},
		},
		tests: "./adapters/etcd -run TestLeader_KeyDetached$",
	},
	{
		name: "etcd/stream", breaks: "each keepalive opens a stream, and authenticates",
		file: "adapters/etcd/request.go",
		edits: []edit{
			{"		if r.err != nil {\n			s.close()", "		if true {\n			s.close()"},
		},
		tests: "./adapters/etcd -run TestKeepalive_Authentication",
	},
	{
		name: "etcd/sent", breaks: "a lease is measured from when the response was received",
		file: "adapters/etcd/request.go",
		edits: []edit{
			{"	r.took = time.Since(r.keepalive.sent)\n", "	r.took, r.keepalive.sent = time.Since(r.keepalive.sent), time.Now()\n"},
		},
		tests: "./adapters/etcd -run TestLease_IsMeasuredFromSending",
	},
}
