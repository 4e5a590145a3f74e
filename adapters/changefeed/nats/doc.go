// Package nats implements a [changefeed.Store] in a key-value bucket of NATS JetStream.
//
// # Guarantees
//
// A heartbeat is a compare-and-set on the revision of the record. At most one candidate
// is the leader if the bucket has one replica and stores its data in files. The server
// that stores it may be a single server or a member of a cluster; while it is down there
// is no leader. Acknowledged writes survive the server's process, but reach the disk
// later: the server syncs its files every two minutes, or from release 2.10 on with each
// message if sync_interval is "always". A machine that loses power may lose the last
// minutes, and issue the tokens of that time again.
//
// [Store.Start] rejects buckets with several replicas with a [changefeed.UnsafeError].
// For these, a server compares the revision before it replicates the write, so two
// candidates can both receive a success; this was observed with 2.9.10. [WithReplicas]
// describes the risk in later releases, and accepts it, as [WithRisk] does. Buckets in
// memory are rejected as well, because their revisions restart with their servers.
//
// # Layout
//
//	<key>.<nanoseconds>     the record, as JSON
//
// The number is the creation time of the bucket. If a bucket is deleted and created
// again, its revisions restart, and a delayed heartbeat to the old bucket could match a
// revision of the new one. Because the key contains the creation time, such a heartbeat
// does not find its key. All other keys of the bucket belong to the program;
// [Store.Changes] delivers their changes.
//
// Record.Time is not set, because an acknowledgement does not contain the time.
//
// # Costs
//
// A heartbeat is one message. It delivers the record to the followers, which do not read
// while heartbeats arrive; after three seconds without a message a follower sends two
// requests. Each feed is an ephemeral consumer.
//
// # Connections
//
// By default, a connection of nats.go closes itself after 60 attempts to reconnect, which
// take two minutes, and when a server has rejected its credentials twice. A closed
// connection ends candidacies. NewStore rejects such connections: create them with
// nats.MaxReconnects(-1) and nats.IgnoreAuthErrorAbort(), or accept this behavior with
// [WithClosingConnection].
//
// # Permissions
//
// If a server restricts the subjects to which its users may publish, candidates need, for
// bucket B and key K:
//
//	$KV.B.K.*
//	$JS.API.STREAM.INFO.KV_B           $JS.API.STREAM.MSG.GET.KV_B
//	$JS.API.DIRECT.GET.KV_B.>          $JS.FC.>
//	$JS.API.CONSUMER.CREATE.KV_B.>     $JS.API.CONSUMER.DELETE.KV_B.>
//
// and $JS.API.STREAM.CREATE.KV_B and $JS.API.INFO if they must create the bucket. They
// subscribe to _INBOX.>.
package nats
