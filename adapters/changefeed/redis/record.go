package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
)

// write replaces the record, or makes one, and publishes it. Everything is text: Lua's
// numbers are not exact enough. The driver repeats a request whose answer was lost; the
// second time it finds its own version, and that is a success.
//
// ARGV: channel, epoch and version to be replaced, both empty for none, what to publish
// without the time, then the new fields, version first. It returns what became of it, and
// the time.
var write = redis.NewScript(`
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
redis.call('HSET', KEYS[1], 'version', ARGV[5], 'epoch', ARGV[6], 'leader', ARGV[7], 'session', ARGV[8],
	'nominee', ARGV[9], 'term', ARGV[10], 'seq', ARGV[11], 'ttl', ARGV[12], 'ended', ARGV[13], 'time', time)
redis.call('PUBLISH', ARGV[1], time .. ' ' .. ARGV[4])
return {'written', time}
`)

// read is a script as well, so that a client that reads from replicas asks the master.
var read = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
return redis.call('HMGET', KEYS[1], 'version', 'epoch', 'leader', 'session', 'nominee', 'term', 'seq', 'ttl', 'ended', 'time')
`)

func (s *Store) write(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	next.Version = rand.Text()
	ended := "0"
	if next.Ended {
		ended = "1"
	}
	answer, err := write.Run(ctx, s.client, []string{s.key}, s.channel, prev.Epoch, prev.Version, codec.EncodeMessage(next),
		next.Version, next.Epoch, next.Leader, next.Session, next.Nominee,
		strconv.FormatUint(next.Term, 10), strconv.FormatUint(next.Seq, 10), strconv.FormatInt(int64(next.TTL), 10), ended).StringSlice()
	switch {
	case err != nil:
		return changefeed.Record{}, err
	case len(answer) == 1 && answer[0] == "none":
		return changefeed.Record{}, changefeed.ErrNoRecord
	case len(answer) == 1:
		return changefeed.Record{}, changefeed.ErrConflict
	}
	micros, err := strconv.ParseInt(answer[1], 10, 64)
	next.Time = time.UnixMicro(micros).UTC()
	return next, err
}

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	return ask(ctx, s, "heartbeat on", func(ctx context.Context) (changefeed.Record, error) {
		if err := codec.CheckColumns(next); err != nil {
			return changefeed.Record{}, err
		}
		if prev.Version == "" { // which would make a record
			return changefeed.Record{}, changefeed.ErrConflict
		}
		return s.write(ctx, prev, next)
	})
}

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	_, err := ask(ctx, s, "create a record in", func(ctx context.Context) (changefeed.Record, error) {
		if err := codec.CheckColumns(blank); err != nil {
			return changefeed.Record{}, err
		}
		r, err := s.write(ctx, changefeed.Record{}, blank)
		if errors.Is(err, changefeed.ErrConflict) { // there is something: a record?
			return s.read(ctx)
		}
		return r, err
	})
	return err
}

// Read implements [changefeed.Store]. The master answers it.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	return ask(ctx, s, "read", s.read)
}

func (s *Store) read(ctx context.Context) (changefeed.Record, error) {
	values, err := read.Run(ctx, s.client, []string{s.key}).Slice()
	if err != nil {
		return changefeed.Record{}, err
	}
	if len(values) == 0 {
		return changefeed.Record{}, changefeed.ErrNoRecord
	}
	var f [10]string
	for i := range f {
		var ok bool
		if f[i], ok = values[i].(string); !ok {
			return changefeed.Record{}, s.misshapen()
		}
	}
	term, err1 := strconv.ParseUint(f[5], 10, 64)
	seq, err2 := strconv.ParseUint(f[6], 10, 64)
	ttl, err3 := strconv.ParseInt(f[7], 10, 64)
	micros, err4 := strconv.ParseInt(f[9], 10, 64)
	if errors.Join(err1, err2, err3, err4) != nil || f[0] == "" {
		return changefeed.Record{}, s.misshapen()
	}
	return changefeed.Record{
		Version: f[0], Epoch: f[1], Leader: f[2], Session: f[3], Nominee: f[4], Term: term, Seq: seq,
		TTL: time.Duration(ttl), Ended: f[8] == "1", Time: time.UnixMicro(micros).UTC(),
	}, nil
}

func (s *Store) misshapen() error {
	return fmt.Errorf("%w: redis: key %q is a hash, but not the record of an election; use another key", changefeed.ErrUnsuitable, s.key)
}
