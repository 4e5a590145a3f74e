package etcd

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// outageLog logs why requests fail. It logs a warning once they have failed for outageDelay, and further
// warnings at growing intervals, or earlier if the reason has changed. Its methods may be called from any
// goroutine, and on a nil outageLog.
type outageLog struct {
	client *clientv3.Client
	log    *slog.Logger

	mu       sync.Mutex
	begin    time.Time // begin is when the first attempt since the last success began that has failed, or zero.
	last     error     // last is the error of the last failed attempt.
	reason   string    // reason is the reason in the last warning, or "" if there was no warning since begin.
	logged   time.Time // logged is when the last warning was logged.
	interval time.Duration
}

const (
	outageDelay       = 2 * time.Second
	maxOutageInterval = time.Minute
)

// recordFailure records that an attempt that began at start has failed with err, and logs a warning if
// one is due.
func (o *outageLog) recordFailure(start time.Time, err error) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begin.IsZero() {
		o.begin, o.interval = start, outageDelay
	}
	now, pause := time.Now(), o.interval
	if o.last = err; err.Error() != o.reason {
		pause /= 4 // A new reason is logged earlier, but not immediately, because reasons can alternate.
	}
	if now.Sub(o.begin) < outageDelay || o.reason != "" && now.Sub(o.logged) < pause {
		return
	}
	o.warnOfOutage(now)
}

// recordSuspension records that a leadership was suspended because attempts have failed. It logs the reason
// at once, unless a warning has contained it already.
func (o *outageLog) recordSuspension() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.begin.IsZero() && o.reason == "" {
		o.warnOfOutage(time.Now())
	}
}

// warnOfOutage logs the last error. The caller must hold mu.
func (o *outageLog) warnOfOutage(now time.Time) {
	o.reason, o.logged, o.interval = o.last.Error(), now, min(2*o.interval, maxOutageInterval)
	o.log.Warn("etcd does not execute requests", "endpoints", strings.Join(o.client.Endpoints(), ","), "since", o.begin, "err", o.last)
}

// recordSuccess records that etcd has executed a request, and logs it if a warning was logged before.
func (o *outageLog) recordSuccess() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reason != "" {
		o.log.Info("etcd executes requests again", "after", time.Since(o.begin))
	}
	o.begin, o.reason = time.Time{}, ""
}

// warningsOnly is the handler of the default logger: it drops messages below the level Warn.
type warningsOnly struct{ slog.Handler }

func (h warningsOnly) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

func (h warningsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warningsOnly{h.Handler.WithAttrs(attrs)}
}

func (h warningsOnly) WithGroup(name string) slog.Handler {
	return warningsOnly{h.Handler.WithGroup(name)}
}
