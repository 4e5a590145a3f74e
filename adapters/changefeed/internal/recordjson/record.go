// Package recordjson is the form in which stores of bytes keep a record: JSON that people
// can read with the store's own tools.
package recordjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// format is in every record, so that other data is not mistaken for one.
const format = "changefeed/1"

// maxSize is far more than names need, and less than any of the stores refuses: ZooKeeper
// ends the caller's connection at 1 MiB, with everything else that is on it.
const maxSize = 256 << 10

type record struct {
	Format  string `json:"format"`
	Epoch   string `json:"epoch"`
	Seq     uint64 `json:"seq"`
	Term    uint64 `json:"term"`
	Leader  string `json:"leader"`
	Session string `json:"session"`
	Nominee string `json:"nominee,omitempty"`
	TTL     int64  `json:"ttl_ns"`
	Ended   bool   `json:"ended,omitempty"`
}

// Encode returns what is kept of r: all but Time and Version. A record that JSON would
// change, or that is too long, is refused.
func Encode(r changefeed.Record) ([]byte, error) {
	for name, text := range map[string]string{"Epoch": r.Epoch, "Leader": r.Leader, "Session": r.Session, "Nominee": r.Nominee} {
		if !utf8.ValidString(text) {
			return nil, fmt.Errorf("%w: %s %q is not UTF-8", changefeed.ErrUnsuitable, name, text)
		}
	}
	data, err := json.Marshal(record{
		Format: format, Epoch: r.Epoch, Seq: r.Seq, Term: r.Term, Leader: r.Leader,
		Session: r.Session, Nominee: r.Nominee, TTL: int64(r.TTL), Ended: r.Ended,
	})
	if err != nil {
		return nil, err
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("%w: the record has %d bytes, the limit is %d; use shorter IDs", changefeed.ErrUnsuitable, len(data), maxSize)
	}
	return data, nil
}

// Decode is its inverse. The error says that data is no record, and wraps
// [changefeed.ErrUnsuitable]. Fields that it does not know are left out.
func Decode(data []byte) (changefeed.Record, error) {
	var r record
	err := json.Unmarshal(data, &r)
	switch {
	case err != nil:
	case r.Format != format:
		err = fmt.Errorf("its format is %q, not %q", r.Format, format)
	case r.Epoch == "":
		err = errors.New("it has no epoch")
	case r.TTL < 0:
		err = errors.New("its TTL is below 0")
	}
	if err != nil {
		return changefeed.Record{}, fmt.Errorf("%w: %q is not the record of an election (%w): use another key",
			changefeed.ErrUnsuitable, data[:min(len(data), 80)], err)
	}
	return changefeed.Record{
		Epoch: r.Epoch, Seq: r.Seq, Term: r.Term, Leader: r.Leader, Session: r.Session,
		Nominee: r.Nominee, TTL: time.Duration(r.TTL), Ended: r.Ended,
	}, nil
}
