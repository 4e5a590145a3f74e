// Package nats keeps an election by changefeed in a bucket of keys and values of NATS
// JetStream.
//
// # Guarantees
//
// A heartbeat is a compare-and-set on the revision of the record, and at most one candidate
// leads, if the bucket has one replica and keeps its data in files. That one server may be
// alone or one of a cluster; while it is down nobody leads. What it has acknowledged
// survives its process, but reaches the disk later: it writes files through every two
// minutes, releases from 2.10 on with each message if the setting sync_interval is always.
// A machine that loses power may forget the last minutes, and give tokens again that it gave
// in them.
//
// Buckets with several replicas are refused by a [changefeed.UnsafeError]. There a server compares the revision before it
// replicates the write, and two candidates can both be told that they have won; tests of
// this package saw 2.9.10 do so. WithReplicas describes what remains of that in newer
// releases, and accepts it, as WithRisk does. Buckets in memory are refused too: their revisions begin anew with their
// servers.
//
// # Layout
//
//	<key>.<nanoseconds>     the record, as JSON
//
// The number is when the bucket was made. The revisions of a bucket that was deleted and
// made anew begin anew, and a late heartbeat of before could meet its own; with the name of
// the bucket's life in its key it meets nothing. All other keys of the bucket are the
// program's, and Watch tells of their changes.
//
// Record.Time is not set: an acknowledgement does not carry the time.
//
// # Costs
//
// A heartbeat is one message. It carries the record to the followers, who read nothing while
// heartbeats come; after three seconds of silence a follower asks twice. Each feed is an
// ephemeral consumer.
//
// # Connections
//
// A connection of nats.go closes itself after 60 attempts to reconnect, which is two minutes,
// and when a server has refused its credentials twice. A closed connection ends candidacies.
// New refuses connections that do so: make them with nats.MaxReconnects(-1) and
// nats.IgnoreAuthErrorAbort(), or accept their end with WithClosingConnection.
//
// # Rights
//
// Where a server restricts what its users may publish, candidates need, for bucket B and
// key K:
//
//	$KV.B.K.*
//	$JS.API.STREAM.INFO.KV_B           $JS.API.STREAM.MSG.GET.KV_B
//	$JS.API.DIRECT.GET.KV_B.>          $JS.FC.>
//	$JS.API.CONSUMER.CREATE.KV_B.>     $JS.API.CONSUMER.DELETE.KV_B.>
//
// and $JS.API.STREAM.CREATE.KV_B and $JS.API.INFO where they are to make the bucket. They
// subscribe to _INBOX.>.
package nats
