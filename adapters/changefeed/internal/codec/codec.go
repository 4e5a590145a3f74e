// Package codec encodes records as JSON, for stores that keep bytes and for messages that
// databases send to their clients with each write. Users can read the JSON with the tools of
// the database.
package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// format is part of each encoded record. It distinguishes records from other data.
const format = "changefeed/1"

// maxSize limits the size of an encoded record, in bytes. IDs need much less, and all stores
// accept it. ZooKeeper closes a connection that sends 1 MiB, with everything else that uses it.
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
	Version string `json:"version,omitempty"` // Version is set in messages only.
}

// Encode returns r without Time and Version. The error wraps [changefeed.ErrUnsuitable] if r is
// too long, or if it contains text that JSON would change.
func Encode(r changefeed.Record) ([]byte, error) {
	r.Version = ""
	return encode(r)
}

func encode(r changefeed.Record) ([]byte, error) {
	for name, text := range texts(r) {
		if !utf8.ValidString(text) {
			return nil, fmt.Errorf("%w: %s %q is not UTF-8", changefeed.ErrUnsuitable, name, text)
		}
	}
	data, err := json.Marshal(record{
		Format: format, Epoch: r.Epoch, Seq: r.Seq, Term: r.Term, Leader: r.Leader, Session: r.Session,
		Nominee: r.Nominee, TTL: int64(r.TTL), Ended: r.Ended, Version: r.Version,
	})
	if err != nil {
		return nil, err
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("%w: the record has %d bytes, the limit is %d; use shorter IDs", changefeed.ErrUnsuitable, len(data), maxSize)
	}
	return data, nil
}

// Decode returns the record that Encode has encoded. It ignores unknown fields. The error wraps
// [changefeed.ErrUnsuitable] if data is not a record.
func Decode(data []byte) (changefeed.Record, error) {
	r, err := decode(data)
	r.Version = ""
	return r, err
}

func decode(data []byte) (changefeed.Record, error) {
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
		Nominee: r.Nominee, TTL: time.Duration(r.TTL), Ended: r.Ended, Version: r.Version,
	}, nil
}

// EncodeMessage returns r without Time, for a message. The result is empty if r cannot be
// encoded: clients that receive such a message read the record.
func EncodeMessage(r changefeed.Record) string {
	data, err := encode(r)
	if err != nil {
		return ""
	}
	return string(data)
}

// DecodeMessage decodes a message: the time of the write in microseconds since the Unix epoch, a
// space, and the result of EncodeMessage. The record is a hint, because any client may have sent
// the message. For any other text the result is the zero event, so that the feed reads the record.
func DecodeMessage(message string) changefeed.Event {
	head, body, _ := strings.Cut(message, " ")
	micros, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return changefeed.Event{}
	}
	r, err := decode([]byte(body))
	if err != nil || r.Version == "" {
		return changefeed.Event{}
	}
	r.Time = time.UnixMicro(micros).UTC()
	return changefeed.Event{Record: r, Hint: true}
}

// CheckColumns returns an error that wraps [changefeed.ErrUnsuitable] if a database with text and
// 64-bit columns would change r.
func CheckColumns(r changefeed.Record) error {
	for name, text := range texts(r) {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return fmt.Errorf("%w: %s %q is not UTF-8 text without NUL", changefeed.ErrUnsuitable, name, text)
		}
	}
	if r.Term > math.MaxInt64 || r.Seq > math.MaxInt64 {
		return fmt.Errorf("%w: Term %d or Seq %d is above %d", changefeed.ErrUnsuitable, r.Term, r.Seq, uint64(math.MaxInt64))
	}
	return nil
}

// texts returns the texts that candidates write, by their fields.
func texts(r changefeed.Record) map[string]string {
	return map[string]string{"Epoch": r.Epoch, "Leader": r.Leader, "Session": r.Session, "Nominee": r.Nominee}
}
