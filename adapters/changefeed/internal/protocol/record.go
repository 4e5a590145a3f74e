package protocol

import (
	"strconv"
	"strings"
	"time"
)

// Record has the fields of changefeed.Record, so that the two types can be converted.
type Record struct {
	Epoch   string
	Leader  string
	Session string
	Nominee string
	Term    uint64
	Seq     uint64
	TTL     time.Duration
	Ended   bool
	Time    time.Time
	Version string
}

// Released reports whether the last leader has released the record, so that the next leader does not have to wait. An
// unclaimed record, which no candidate has claimed since it was created, is not released.
func (r Record) Released() bool { return r.Leader == "" && r.Session == "" && r.Term > 0 && r.TTL == 0 }

// MaxTerm is the greatest term of a record. All stores keep integers up to MaxTerm exactly. Only a record that was
// edited or damaged has a greater term.
const MaxTerm = 1<<53 - 1

// FirstTerm returns the term of an unclaimed record. known is the greatest term that the candidate knows, and wall is the
// time by the wall clock, as a term. Leaders that no remaining candidate has observed may have used greater terms than
// known, but none greater than the wall clock's time, as far as that clock can be trusted. wall is limited, so that
// terms for later leaders remain even if the wall clock is wrong by millennia.
func FirstTerm(known, wall uint64) uint64 { return max(known, min(wall, MaxTerm/2)) }

// Generation returns the number at the beginning of an epoch. It increases with each restart of
// an ended election. A record that is created again after a loss has the generation of the lost
// record.
func Generation(epoch string) uint64 {
	number, _, _ := strings.Cut(epoch, ".")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Epoch returns an epoch of a generation: the generation, a dot and random text.
func Epoch(generation uint64, random string) string {
	return strconv.FormatUint(generation, 10) + "." + random
}
