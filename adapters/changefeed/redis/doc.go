// Package redis keeps elections by changefeed in a key of Redis 5 or newer.
//
// # Guarantees and limits
//
// On one server that keeps what it has acknowledged (appendonly yes, appendfsync always),
// a heartbeat is a linearizable compare-and-set: a script, which Redis runs alone. Without
// any file the record is lost at each restart: there is no leader then until the old lease
// has ended, and fencing tokens increase as far as the wall clocks of the candidates do.
//
// Start refuses other deployments by a [changefeed.UnsafeError], unless [WithRisk] names
// what can happen there. Each of them can make two leaders for up to the record's TTL, and
// give a fencing token twice.
//
//   - With appendfsync everysec a crash of the machine can lose the last second or two; one
//     of the process can only when the disk was behind ([changefeed.RiskPowerLoss]).
//   - With snapshots alone (save), which is the server's default, a restart brings an older
//     record back ([changefeed.RiskRestart]).
//   - With replicas, as in Sentinel, Cluster and managed services, a failover can lose
//     acknowledged heartbeats, because Redis replicates after it has answered, and a master
//     that was cut off continues to answer for a while ([changefeed.RiskFailover]). WAIT and
//     min-replicas-to-write make this rarer, and do not exclude it.
//
// A setting that the server does not show to the client's user counts as its default, and
// replicas that are added after Start are not noticed.
//
// The key may be evicted, with an allkeys policy of maxmemory: it is lost then, as at the
// restart of a server without files.
//
// Feeds are SUBSCRIBE: each heartbeat publishes the record on the channel
// "changefeed:DB:KEY", in the script that writes it, so followers read nothing if heartbeats
// come more often than the quiet time of two seconds. Messages may be lost; a feed that
// hears nothing for two seconds (WithQuiet) pings, and reads the record. A client that may
// publish on the channel needs no permission for the key, so a message is taken for the
// leader's next heartbeat at most, and after any other the record is read. Each feed has a
// connection of its own, made
// with the client's options, which never connects again: when it ends, so does the feed.
//
// Redis Cluster works with [changefeed.RiskFailover]: there is one key, in one slot. A
// hash tag, as in "{jobs}:election", keeps it with keys of yours.
//
// The driver gives up no request under way when its context ends, unless
// Options.ContextTimeoutEnabled is set: the store's methods return then, but a goroutine
// and a connection of the pool stay busy until the client's own timeouts, which are 3 s
// four times by default. Set it, or MaxRetries to -1 and ReadTimeout to a heartbeat.
//
// # Layout
//
// The key is a hash with the fields epoch, leader, session, nominee, term (the fencing
// token), seq, ttl (nanoseconds), ended (0 or 1), version (random, anew with each write)
// and time (microseconds since 1970, by the server's clock). It never expires. Rights
// needed: EVALSHA, EVAL, HMGET, HSET, EXISTS, TIME, TYPE, ROLE, PUBLISH, SUBSCRIBE and PING, on
// the key and the channel; and CONFIG GET, or at least INFO, for the checks of Start.
package redis
