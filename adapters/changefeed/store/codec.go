package store

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

// Format is part of each encoded record. It distinguishes records from other data.
const Format = "changefeed/1"

// maxSize is the maximum size of an encoded record, in bytes. Records with the longest IDs are much smaller, and all
// databases of this library accept this size.
const maxSize = 256 << 10

// Document is the layout of a record without its time. N is the type of the database's numbers.
type Document[N int64 | uint64 | float64] struct {
	Format  string `json:"format" bson:"format"`
	Epoch   string `json:"epoch" bson:"epoch"`
	Seq     N      `json:"seq" bson:"seq"`
	Term    N      `json:"term" bson:"term"`
	Leader  string `json:"leader" bson:"leader"`
	Session string `json:"session" bson:"session"`
	Nominee string `json:"nominee,omitempty" bson:"nominee"`
	TTL     N      `json:"ttl_ns" bson:"ttl_ns"`
	Ended   bool   `json:"ended,omitempty" bson:"ended"`
	Version string `json:"version,omitempty" bson:"version"` // Version is not part of what Encode returns.
}

// NewDocument returns the document of r.
func NewDocument[N int64 | uint64 | float64](r changefeed.Record) Document[N] {
	return Document[N]{
		Format: Format, Epoch: r.Epoch, Seq: N(r.Seq), Term: N(r.Term), Leader: r.Leader, Session: r.Session,
		Nominee: r.Nominee, TTL: N(r.TTL), Ended: r.Ended, Version: r.Version,
	}
}

// Record returns the record in d. If there is none, the error is a result of [NotRecord].
func (d Document[N]) Record() (changefeed.Record, error) {
	isNatural := func(n N) bool { return n >= 0 && N(uint64(n)) == n }
	r := changefeed.Record{
		Epoch: d.Epoch, Seq: uint64(d.Seq), Term: uint64(d.Term), Leader: d.Leader, Session: d.Session,
		Nominee: d.Nominee, TTL: time.Duration(d.TTL), Ended: d.Ended, Version: d.Version,
	}
	switch {
	case d.Format != Format:
		return changefeed.Record{}, NotRecord(fmt.Errorf("the format is %q, not %q", d.Format, Format))
	case d.Epoch == "":
		return changefeed.Record{}, NotRecord(errors.New("the epoch is missing or empty"))
	case !isNatural(d.Term) || !isNatural(d.Seq) || !isNatural(d.TTL) || r.TTL < 0:
		return changefeed.Record{}, NotRecord(errors.New("the term, seq or ttl_ns is not a natural number"))
	}
	return r, nil
}

// NotRecord is the error for data that is not a record. It wraps [changefeed.ErrUnsuitable] and the
// reason.
func NotRecord(reason error) error {
	return fmt.Errorf("%w: the data is not the record of an election (%w): use another key", changefeed.ErrUnsuitable, reason)
}

// Encode returns r as JSON, without Time and Version. The error wraps [changefeed.ErrUnsuitable] if r is
// too long, or if it contains text that JSON would change.
func Encode(r changefeed.Record) ([]byte, error) {
	r.Version = ""
	return encode(r)
}

func encode(r changefeed.Record) ([]byte, error) {
	for name, text := range textsOf(r) {
		if !utf8.ValidString(text) {
			return nil, fmt.Errorf("%w: %s %q is not UTF-8", changefeed.ErrUnsuitable, name, text)
		}
	}
	data, err := json.Marshal(NewDocument[uint64](r))
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
	var d Document[uint64]
	if err := json.Unmarshal(data, &d); err != nil {
		return changefeed.Record{}, NotRecord(err)
	}
	return d.Record()
}

// EncodeMessage returns r as JSON, without Time, for a message to clients. The result is empty if r cannot be encoded:
// clients that receive an empty message read the record.
func EncodeMessage(r changefeed.Record) string {
	data, err := encode(r)
	if err != nil {
		return ""
	}
	return string(data)
}

// DecodeMessage decodes a message: the time of the write in microseconds since the Unix epoch, a
// space, and the result of EncodeMessage. The record is a hint, because any client may have sent
// the message. For any other text DecodeMessage returns the zero event, which makes the feed read the record.
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

// CheckColumns returns an error that wraps [changefeed.ErrUnsuitable] if r contains a text or a number that a database
// would change or reject in columns of text and 64-bit integers.
func CheckColumns(r changefeed.Record) error {
	for name, text := range textsOf(r) {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return fmt.Errorf("%w: %s %q is not UTF-8 text without NUL", changefeed.ErrUnsuitable, name, text)
		}
	}
	if r.Term > math.MaxInt64 || r.Seq > math.MaxInt64 {
		return fmt.Errorf("%w: Term %d or Seq %d is above %d", changefeed.ErrUnsuitable, r.Term, r.Seq, uint64(math.MaxInt64))
	}
	return nil
}

// textsOf returns the texts in r that candidates write, by the names of their fields.
func textsOf(r changefeed.Record) map[string]string {
	return map[string]string{"Epoch": r.Epoch, "Leader": r.Leader, "Session": r.Session, "Nominee": r.Nominee}
}
