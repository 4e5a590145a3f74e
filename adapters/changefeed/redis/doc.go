// Package redis keeps elections by changefeed in a key of Redis 5 or newer.
//
// # Guarantees and limits
//
// On one server that keeps what it has acknowledged (appendonly yes, appendfsync always),
// a heartbeat is a linearizable compare-and-set: a script, which Redis runs alone. With
// appendfsync everysec a crash of the machine may lose the last second or two; one of the
// process may only when the disk was behind. With snapshots alone (save), which is the
// server's default, a restart brings an older record back, as a failover does. Without a
// file the record is lost at each restart: candidates then
// wait for the old lease to run out before anybody leads, and the fencing token goes on
// from the highest that any of them has seen.
//
// It is NOT safe where a replica may be promoted: Redis replicates after it has answered,
// so Sentinel, Cluster and managed services can lose acknowledged heartbeats at a
// failover, and a master that was cut off goes on answering for a while. Then there can be
// two leaders for up to the record's TTL, and a fencing token can be given twice. WAIT and
// min-replicas-to-write make this rarer, and do not exclude it. Where that matters, take
// another store. Nor may the key be evicted: with an allkeys policy of maxmemory it can be
// lost at any time.
//
// Feeds are SUBSCRIBE: each heartbeat publishes the record on the channel
// "changefeed:DB:KEY", in the script that writes it, so followers read nothing as long as
// there is a leader. Messages may be lost; a feed that hears nothing for two seconds
// (WithQuiet) pings, and reads the record. Each feed has a connection of its own, made
// with the client's options, which never connects again: when it ends, so does the feed.
//
// Redis Cluster is supported as far as the above goes: there is one key, in one slot. A
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
// the key and the channel.
package redis
