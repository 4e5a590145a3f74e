// Package notice encodes records in messages, for stores whose servers pass on a message with each
// write.
package notice

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// text is a record in a message, without its time, which the server puts before it.
type text struct {
	Epoch   string `json:"epoch"`
	Leader  string `json:"leader,omitempty"`
	Session string `json:"session,omitempty"`
	Nominee string `json:"nominee,omitempty"`
	Term    uint64 `json:"term"`
	Seq     uint64 `json:"seq"`
	TTL     int64  `json:"ttl"`
	Ended   bool   `json:"ended,omitempty"`
	Version string `json:"version"`
}

// Encode is r as text, without its time.
func Encode(r changefeed.Record) string {
	b, err := json.Marshal(text{
		r.Epoch, r.Leader, r.Session, r.Nominee, r.Term, r.Seq, int64(r.TTL), r.Ended, r.Version,
	})
	if err != nil {
		panic(err) // nothing in it can fail
	}
	return string(b)
}

// Decode reads a message: the time of the write, in microseconds since 1970, a space, and
// what Encode has made. It is false for anything else.
func Decode(message string) (changefeed.Record, bool) {
	head, body, ok := strings.Cut(message, " ")
	micros, err := strconv.ParseInt(head, 10, 64)
	var t text
	if !ok || err != nil || json.Unmarshal([]byte(body), &t) != nil || t.Version == "" {
		return changefeed.Record{}, false
	}
	return changefeed.Record{
		Epoch: t.Epoch, Leader: t.Leader, Session: t.Session, Nominee: t.Nominee,
		Term: t.Term, Seq: t.Seq, TTL: time.Duration(t.TTL), Ended: t.Ended,
		Version: t.Version, Time: time.UnixMicro(micros).UTC(),
	}, true
}

// Check refuses a record that would come back another.
func Check(r changefeed.Record) error {
	for name, s := range map[string]string{
		"Epoch": r.Epoch, "Leader": r.Leader, "Session": r.Session, "Nominee": r.Nominee,
	} {
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return fmt.Errorf("%w: %s %q is not UTF-8 text without NUL", changefeed.ErrUnsuitable, name, s)
		}
	}
	if r.Term > math.MaxInt64 || r.Seq > math.MaxInt64 {
		return fmt.Errorf("%w: Term %d or Seq %d is above %d", changefeed.ErrUnsuitable, r.Term, r.Seq, uint64(math.MaxInt64))
	}
	return nil
}
