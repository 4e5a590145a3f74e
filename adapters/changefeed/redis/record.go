package redis

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// writeScript publishes the record, and replaces or creates it. It publishes first, because the user may lack the
// permission to publish, and the server does not undo the commands of a script that fails; clients receive the
// message only after the script. All values are text, because Lua's numbers are not exact enough. If the driver
// repeats a request whose reply was lost, the script finds in the record the version that it would write, and
// returns success.
//
// ARGV contains the channel, the epoch and the version to replace (empty to create the record),
// the message without its time, and the fields of the record, beginning with the version. The
// script returns the outcome and the time of the write.
var writeScript = redis.NewScript(`
local old = redis.call('HMGET', KEYS[1], 'version', 'epoch', 'time')
if old[1] == ARGV[5] then return {'written', old[3]} end
if ARGV[3] == '' then
	if redis.call('EXISTS', KEYS[1]) == 1 then return {'conflict'} end
else
	if not old[1] then return {'none'} end
	if old[1] ~= ARGV[3] or old[2] ~= ARGV[2] then return {'conflict'} end
end
local now = redis.call('TIME')
local time = now[1] .. string.format('%06d', now[2])
redis.call('PUBLISH', ARGV[1], time .. ' ' .. ARGV[4])
redis.call('HSET', KEYS[1], 'version', ARGV[5], 'epoch', ARGV[6], 'leader', ARGV[7], 'session', ARGV[8],
	'nominee', ARGV[9], 'term', ARGV[10], 'seq', ARGV[11], 'ttl', ARGV[12], 'ended', ARGV[13], 'time', time)
return {'written', time}
`)

// publishScript publishes an empty message, which makes feeds read the record. It is a script because it must run, like
// writeScript, on the server of the key. It writes nothing.
var publishScript = redis.NewScript(`return redis.call('PUBLISH', ARGV[1], '')`)

// readScript is a script because a client that reads from replicas still sends scripts to the master.
var readScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
return redis.call('HMGET', KEYS[1], 'version', 'epoch', 'leader', 'session', 'nominee', 'term', 'seq', 'ttl', 'ended', 'time')
`)

// writeRecord replaces prev, or creates the record if prev is empty.
func (s *Store) writeRecord(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	ended := "0"
	if next.Ended {
		ended = "1"
	}
	reply, err := writeScript.Run(ctx, s.client, []string{s.key}, s.channel, prev.Epoch, prev.Version, store.EncodeMessage(next),
		next.Version, next.Epoch, next.Leader, next.Session, next.Nominee,
		strconv.FormatUint(next.Term, 10), strconv.FormatUint(next.Seq, 10), strconv.FormatInt(int64(next.TTL), 10), ended).StringSlice()
	switch {
	case err != nil:
		return changefeed.Record{}, err
	case len(reply) == 1 && reply[0] == "none":
		return changefeed.Record{}, changefeed.ErrNoRecord
	case len(reply) == 1:
		return changefeed.Record{}, changefeed.ErrConflict
	}
	micros, err := strconv.ParseInt(reply[1], 10, 64)
	next.Time = time.UnixMicro(micros).UTC()
	return next, err
}

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	return s.runner.Heartbeat(ctx, "heartbeat on", prev, next, func(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
		if prev.Version == "" { // The script would create a record.
			return changefeed.Record{}, changefeed.ErrConflict
		}
		return s.writeRecord(ctx, prev, next)
	})
}

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	return s.runner.Create(ctx, "create a record in", blank, func(ctx context.Context, blank changefeed.Record) error {
		_, err := s.writeRecord(ctx, changefeed.Record{}, blank)
		if errors.Is(err, changefeed.ErrConflict) { // The key exists: check that it is a record.
			_, err = s.readRecord(ctx)
		}
		return err
	})
}

// Read implements [changefeed.Store]. The master answers the request.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	return s.runner.Read(ctx, "read", s.readRecord)
}

func (s *Store) readRecord(ctx context.Context) (changefeed.Record, error) {
	values, err := readScript.Run(ctx, s.client, []string{s.key}).Slice()
	if err != nil {
		return changefeed.Record{}, err
	}
	if len(values) == 0 {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	r, ok := decodeRecord(values)
	if !ok {
		return changefeed.Record{}, s.otherHashError()
	}
	return r, nil
}

// decodeRecord decodes the fields that readScript returns. ok is false if they are not the fields of a
// record.
func decodeRecord(values []any) (r changefeed.Record, ok bool) {
	var f [10]string
	if len(values) != len(f) {
		return r, false
	}
	for i := range f {
		if f[i], ok = values[i].(string); !ok {
			return r, false
		}
	}
	term, err1 := strconv.ParseUint(f[5], 10, 64)
	seq, err2 := strconv.ParseUint(f[6], 10, 64)
	ttl, err3 := strconv.ParseUint(f[7], 10, 64)
	micros, err4 := strconv.ParseInt(f[9], 10, 64)
	r, err5 := store.Document[uint64]{
		Format: store.Format, Version: f[0], Epoch: f[1], Leader: f[2], Session: f[3], Nominee: f[4],
		Term: term, Seq: seq, TTL: ttl, Ended: f[8] == "1",
	}.Record()
	r.Time = time.UnixMicro(micros).UTC()
	return r, errors.Join(err1, err2, err3, err4, err5) == nil && r.Version != ""
}

// otherHashError returns the error for a key that another program uses.
func (s *Store) otherHashError() error {
	return s.runner.Unsuitable("key %q is a hash, but not the record of an election; use another key", s.key)
}
