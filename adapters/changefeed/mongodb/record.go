package mongodb

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// format is in every record, so that other documents are not mistaken for one.
const format = "changefeed/1"

type record struct {
	Format  string    `bson:"format"`
	Epoch   string    `bson:"epoch"`
	Leader  string    `bson:"leader"`
	Session string    `bson:"session"`
	Nominee string    `bson:"nominee"`
	Term    int64     `bson:"term"`
	Seq     int64     `bson:"seq"`
	TTL     int64     `bson:"ttl_ns"`
	Ended   bool      `bson:"ended"`
	Version string    `bson:"version"`
	Time    time.Time `bson:"time,omitempty"` // the server's
}

// update sets all of a record, its time by the server's clock. There are no operators in
// it that servers of old do not know.
func update(r changefeed.Record) bson.D {
	return bson.D{
		{Key: "$set", Value: record{
			Format: format, Epoch: r.Epoch, Leader: r.Leader, Session: r.Session, Nominee: r.Nominee,
			Term: int64(r.Term), Seq: int64(r.Seq), TTL: int64(r.TTL), Ended: r.Ended, Version: r.Version,
		}},
		{Key: "$currentDate", Value: bson.D{{Key: "time", Value: true}}},
	}
}

// decode reads a document. The error wraps [changefeed.ErrUnsuitable].
func decode(raw bson.Raw) (changefeed.Record, error) {
	var d record
	err := bson.Unmarshal(raw, &d)
	switch {
	case err != nil:
	case d.Format != format:
		err = fmt.Errorf("its format is %q, not %q", d.Format, format)
	case d.Epoch == "" || d.Version == "":
		err = errors.New("it has no epoch or no version")
	case d.Term < 0 || d.Seq < 0 || d.TTL < 0:
		err = errors.New("its term, seq or ttl_ns is below 0")
	}
	if err != nil {
		return changefeed.Record{}, fmt.Errorf("%w: the document is not the record of an election (%w): use another key",
			changefeed.ErrUnsuitable, err)
	}
	return changefeed.Record{
		Epoch: d.Epoch, Leader: d.Leader, Session: d.Session, Nominee: d.Nominee,
		Term: uint64(d.Term), Seq: uint64(d.Seq), TTL: time.Duration(d.TTL), Ended: d.Ended,
		Version: d.Version, Time: d.Time.UTC(),
	}, nil
}
