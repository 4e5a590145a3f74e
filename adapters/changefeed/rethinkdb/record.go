package rethinkdb

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/codec"
)

// format is in every record, so that other documents are not mistaken for one.
const format = "changefeed/1"

// maxNumber is up to where RethinkDB's numbers, which are doubles, are exact.
const maxNumber = 1 << 53

// check refuses a record that would come back another.
func check(rec changefeed.Record) error {
	if rec.Term > maxNumber || rec.Seq > maxNumber || rec.TTL < 0 || rec.TTL > maxNumber {
		return fmt.Errorf("%w: rethinkdb: Term %d, Seq %d or TTL %v is below 0 or, as a number, above %d",
			changefeed.ErrUnsuitable, rec.Term, rec.Seq, rec.TTL, int64(maxNumber))
	}
	return codec.CheckColumns(rec)
}

// document is what is written of rec.
func document(rec changefeed.Record) map[string]any {
	return map[string]any{
		"format": format, "epoch": rec.Epoch, "leader": rec.Leader, "session": rec.Session,
		"nominee": rec.Nominee, "term": rec.Term, "seq": rec.Seq, "ttl_ns": int64(rec.TTL),
		"ended": rec.Ended, "version": rec.Version, "time": r.Now(),
	}
}

// decode reads a document as the server sends it. The error wraps
// [changefeed.ErrUnsuitable].
func decode(raw json.RawMessage) (changefeed.Record, error) {
	var d struct {
		Format  string
		Epoch   string
		Leader  string
		Session string
		Nominee string
		Term    float64
		Seq     float64
		TTL     float64 `json:"ttl_ns"`
		Ended   bool
		Version string
		Time    struct {
			Seconds float64 `json:"epoch_time"`
		}
	}
	err := json.Unmarshal(raw, &d)
	switch {
	case err != nil:
	case d.Format != format:
		err = fmt.Errorf("its format is %q, not %q", d.Format, format)
	case d.Epoch == "" || d.Version == "":
		err = errors.New("it has no epoch or no version")
	case !natural(d.Term) || !natural(d.Seq) || !natural(d.TTL):
		err = errors.New("its term, seq or ttl_ns is not a natural number")
	}
	if err != nil {
		return changefeed.Record{}, fmt.Errorf("%w: the document is not the record of an election (%w): use another key",
			changefeed.ErrUnsuitable, err)
	}
	return changefeed.Record{
		Epoch: d.Epoch, Leader: d.Leader, Session: d.Session, Nominee: d.Nominee,
		Term: uint64(d.Term), Seq: uint64(d.Seq), TTL: time.Duration(d.TTL), Ended: d.Ended,
		Version: d.Version, Time: time.UnixMilli(int64(math.Round(d.Time.Seconds * 1000))).UTC(),
	}, nil
}

func natural(n float64) bool { return n >= 0 && n <= maxNumber && n == math.Trunc(n) }
