package zkdial

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"sync"
	"time"
)

const (
	// warnAfter is the time after which a connection without a session is logged.
	warnAfter = 2 * time.Second
	// firstRepeat and lastRepeat are the shortest and the longest time between two warnings with the same
	// cause. The time is doubled with each warning.
	firstRepeat = 10 * time.Second
	lastRepeat  = time.Hour
	// maxCauses limits the memory for causes. All further causes together are logged as often as one cause.
	maxCauses = 100
)

var errWaiting = errors.New("the server has not answered yet")

// outage logs why a connection has no session: each cause once, and again at growing intervals.
type outage struct {
	log *slog.Logger

	mu      sync.Mutex
	since   time.Time // when the connection lost its session or was opened; zero while it has one
	closed  bool      // the owner closes the connection
	warned  bool
	repeats map[cause]*repeat
	attempt *time.Timer // warns while an attempt has no result
}

// cause identifies a server and the reason why it has granted no session. The zero value stands for all
// causes after the first maxCauses.
type cause struct{ server, reason string }

// repeat determines when a cause is logged again.
type repeat struct {
	at    time.Time
	after time.Duration
}

// recordBegin records that the connection is without a session.
func (o *outage) recordBegin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since, o.repeats = time.Now(), map[cause]*repeat{}
	}
}

// dial records that a connection to server is being opened, and starts a timer that logs
// the attempt if it has no result in time.
func (o *outage) dial(server string) {
	o.recordBegin()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop()
	o.attempt = time.AfterFunc(max(warnAfter-time.Since(o.since), 0)+time.Millisecond, func() { o.fail(server, errWaiting) })
}

// stop stops the timer of an attempt. The caller holds mu.
func (o *outage) stop() {
	if o.attempt != nil {
		o.attempt.Stop()
	}
}

// fail records that server has not granted a session, and logs err if the connection has been
// without a session for the time warnAfter.
func (o *outage) fail(server string, err error) {
	o.mu.Lock()
	if !errors.Is(err, errWaiting) {
		o.stop()
	}
	now, since := time.Now(), o.since
	warn := !since.IsZero() && !o.closed && now.Sub(since) >= warnAfter && o.mustLog(cause{server, reason(err)}, now)
	o.warned = o.warned || warn
	o.mu.Unlock()
	if warn {
		o.log.Warn("no ZooKeeper server has granted a session; trying again",
			"server", server, "err", err, "for", now.Sub(since).Round(100*time.Millisecond))
	}
}

// mustLog reports whether a cause must be logged now, and then sets when the cause must
// be logged again. The caller holds mu.
func (o *outage) mustLog(c cause, now time.Time) bool {
	if o.repeats[c] == nil && len(o.repeats) >= maxCauses {
		c = cause{}
	}
	r := o.repeats[c]
	switch {
	case r == nil:
		o.repeats[c] = &repeat{now.Add(firstRepeat), firstRepeat}
		return true
	case now.Before(r.at):
		return false
	}
	r.after = min(2*r.after, lastRepeat)
	r.at = now.Add(r.after)
	return true
}

// recordEnd records that server has granted a session.
func (o *outage) recordEnd(server string) {
	o.mu.Lock()
	o.stop()
	warned, since := o.warned, o.since
	o.since, o.warned, o.repeats = time.Time{}, false, nil
	o.mu.Unlock()
	if warned {
		o.log.Info("a ZooKeeper server has granted a session",
			"server", server, "after", time.Since(since).Round(100*time.Millisecond))
	}
}

// close records that the owner closes the connection, after which nothing is logged.
func (o *outage) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop()
	o.closed = true
}

var digits = regexp.MustCompile("[0-9]+")

// reason returns a text that is the same for all errors with the same reason. The text of the error
// itself can contain the local port or the current time, and so differ in each attempt.
func reason(err error) string {
	var lookup *net.DNSError
	var certificate x509.CertificateInvalidError
	switch {
	case errors.As(err, &lookup):
		return fmt.Sprint("lookup ", lookup.Name, lookup.IsNotFound, lookup.IsTimeout, lookup.IsTemporary)
	case errors.As(err, &certificate):
		return fmt.Sprint("certificate ", certificate.Reason)
	}
	for inner := err; inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return digits.ReplaceAllString(err.Error(), "0")
}
