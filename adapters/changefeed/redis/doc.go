// Package redis implements a [changefeed.Store] in a key of Redis 5 or later.
//
// # Guarantees and limits
//
// On one server that keeps acknowledged writes (appendonly yes, appendfsync always), a
// heartbeat is a linearizable compare-and-set: a script, which Redis executes atomically.
// If the server writes no file, the record is lost at each restart: there is no leader
// then until the old lease has expired, and fencing tokens increase only if the
// candidates' wall clocks do.
//
// [Store.Start] rejects other deployments with a [changefeed.UnsafeError], unless
// [WithRisk] accepts their risk. Each of them can result in two leaders until the TTL of
// the record has passed, and issue a fencing token twice.
//
//   - With appendfsync everysec, a crash of the machine can lose the writes of the last one or
//     two seconds. A crash of the process can lose writes only if the disk was behind
//     ([changefeed.RiskPowerLoss]).
//   - With snapshots only (save), which is the server's default, a restart restores an
//     older record ([changefeed.RiskRestart]).
//   - With replicas, as in Sentinel, Cluster and managed services, a failover can lose
//     acknowledged heartbeats, because Redis replicates after it has answered, and a
//     partitioned master continues to answer for a while ([changefeed.RiskFailover]).
//     WAIT and min-replicas-to-write make this less likely, but do not exclude it.
//
// If the client's user may not read a setting, Start assumes the default of the server.
// Replicas that are added after Start are not detected.
//
// The key may be evicted if maxmemory has an allkeys policy. The record is lost then, as
// at the restart of a server without files.
//
// Feeds use SUBSCRIBE: each heartbeat publishes the record on the channel "changefeed:DB:KEY", in the script that
// writes it, before it writes: without permission to publish, nothing is written. So followers do not read if
// heartbeats are more frequent than the quiet time of two seconds. Messages may be lost: if a feed receives
// nothing for the quiet time ([WithQuiet]), it sends a PING and reads the record. A client may publish on the
// channel without permission for the key. Therefore a feed accepts a message at most as the leader's next
// heartbeat, and reads the record after any other message. Each feed uses a separate connection, made with the
// client's options, which does not reconnect: when the connection ends, the feed ends.
//
// Redis Cluster works with [changefeed.RiskFailover], because the store uses one key in
// one slot. A hash tag, as in "{jobs}:election", places it in the slot of other keys.
//
// When a context is done, the driver does not cancel a request in flight unless
// Options.ContextTimeoutEnabled is set: the store's methods return, but a goroutine and a
// connection of the pool stay busy until the client's own timeouts, which are four times
// 3 s by default. Set ContextTimeoutEnabled, or set MaxRetries to -1 and ReadTimeout to a
// heartbeat interval.
//
// The driver prints a line on standard error whenever it cannot connect. Its logger is a
// variable of the process, which the store does not change: see [redis.SetLogger].
//
// # Layout
//
// The key is a hash with the fields epoch, leader, session, nominee, term (the fencing
// token), seq, ttl (nanoseconds), ended (0 or 1), version (random, changed by each write)
// and time (microseconds since 1970, by the server's clock). It never expires. Required
// permissions: EVALSHA, EVAL, HMGET, HSET, EXISTS, TIME, TYPE, ROLE, PUBLISH, SUBSCRIBE
// and PING, on the key and the channel; and CONFIG GET, or at least INFO, for the checks
// of Start.
package redis
