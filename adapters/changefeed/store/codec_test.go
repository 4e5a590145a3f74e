package store

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// TestEncode_KeepsAllFields checks that Decode returns all fields of the record that Encode was given.
func TestEncode_KeepsAllFields(t *testing.T) {
	r := changefeed.Record{
		Epoch: "e", Leader: "<☂> \x00 \"", Session: "s", Nominee: "n",
		Term: math.MaxUint64, Seq: math.MaxUint64 - 1, TTL: time.Hour + 1, Ended: true,
	}
	data, err := Encode(r)
	require.NoError(t, err)
	got, err := Decode(data)
	require.NoError(t, err)
	require.Equal(t, r, got)
}

// TestDecode_RejectsOtherData checks that Decode rejects data of another program.
func TestDecode_RejectsOtherData(t *testing.T) {
	for _, data := range []string{
		"", "text", "{}", "null", "[1]", `{"epoch":"e","seq":1}`, `{"format":"changefeed/2","epoch":"e"}`,
		`{"format":"changefeed/1"}`, `{"format":"changefeed/1","epoch":"e","term":-1}`, `{"format":"changefeed/1","epoch":"e","ttl_ns":-1}`,
	} {
		_, err := Decode([]byte(data))
		require.ErrorIs(t, err, changefeed.ErrUnsuitable, data)
	}
}

// TestEncode_RejectsUnsuitableRecord checks that Encode rejects a record that JSON would change, or that is too
// long.
func TestEncode_RejectsUnsuitableRecord(t *testing.T) {
	for _, r := range []changefeed.Record{
		{Epoch: "e", Leader: "\xff"}, {Epoch: "e", Nominee: "a\xc0"}, {Epoch: "e", Leader: strings.Repeat("a", maxSize)},
	} {
		_, err := Encode(r)
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		require.Empty(t, EncodeMessage(r))
	}
}

// TestDocument_KeepsAllFields checks that the method Record returns all fields that NewDocument was given,
// and rejects a document with a number that is negative or not an integer.
func TestDocument_KeepsAllFields(t *testing.T) {
	r := changefeed.Record{
		Epoch: "e", Leader: "l", Session: "s", Nominee: "n", Term: 1<<53 - 1, Seq: 3, TTL: time.Second, Ended: true, Version: "v",
	}
	got, err := NewDocument[int64](r).Record()
	require.NoError(t, err)
	require.Equal(t, r, got)
	valid := NewDocument[float64](r)
	got, err = valid.Record()
	require.NoError(t, err)
	require.Equal(t, r, got)
	for _, number := range []float64{-1, 1.5, 1e300} {
		for _, change := range []func(*Document[float64]){
			func(d *Document[float64]) { d.Term = number },
			func(d *Document[float64]) { d.Seq = number },
			func(d *Document[float64]) { d.TTL = number },
		} {
			d := valid
			change(&d)
			_, err := d.Record()
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		}
	}
}

// TestDecodeMessage_RejectsOtherText checks that DecodeMessage returns all fields that EncodeMessage was
// given, and the zero event for a text that is not a message.
func TestDecodeMessage_RejectsOtherText(t *testing.T) {
	r := changefeed.Record{
		Epoch: "e", Leader: "<漢字> \"&\n", Session: "s", Nominee: "n", Term: 1 << 60, Seq: 1<<62 + 1,
		TTL: time.Hour + 1, Ended: true, Version: "v", Time: time.UnixMicro(1).UTC(),
	}
	require.Equal(t, changefeed.Event{Record: r, Hint: true}, DecodeMessage("1 "+EncodeMessage(r)))
	data, err := Encode(r)
	require.NoError(t, err)
	for _, message := range []string{
		"", "1", "1 ", "x " + EncodeMessage(r), EncodeMessage(r), "1 {}", "1 []", `1 {"version":"v"`, "1 " + string(data),
	} {
		require.Zero(t, DecodeMessage(message), message)
	}
}

// TestCheckColumns_RejectsUnsuitableRecord checks that CheckColumns rejects a record that a database
// would change.
func TestCheckColumns_RejectsUnsuitableRecord(t *testing.T) {
	require.NoError(t, CheckColumns(changefeed.Record{Leader: "<漢字> \"&\n", Term: 1 << 60, Seq: 1<<62 + 1}))
	for _, bad := range []changefeed.Record{{Leader: "\xff"}, {Nominee: "\x00"}, {Epoch: "\xff"}, {Session: "\xff"}, {Term: 1 << 63}, {Seq: 1 << 63}} {
		require.ErrorIs(t, CheckColumns(bad), changefeed.ErrUnsuitable)
	}
}

// FuzzDecode decodes arbitrary bytes as a record and as a message. The decoder must reject them, or return
// a result that is the same after it was encoded and decoded again.
func FuzzDecode(f *testing.F) {
	r := changefeed.Record{Epoch: "e", Seq: 3, Term: 2, Leader: "l", Session: "s", TTL: time.Second, Version: "v"}
	data, err := Encode(r)
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte("1700000000000000 " + EncodeMessage(r)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := Decode(data); err == nil {
			encoded, err := Encode(r)
			if err != nil {
				require.ErrorIs(t, err, changefeed.ErrUnsuitable)
				return
			}
			again, err := Decode(encoded)
			require.NoError(t, err)
			require.Equal(t, r, again)
		} else {
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		}
		if e := DecodeMessage(string(data)); e.Record.Version != "" {
			require.True(t, e.Hint)
			require.NotEmpty(t, e.Record.Epoch)
		}
	})
}

// FuzzDocument converts documents with arbitrary floating-point numbers. The record must have the same
// numbers as the document.
func FuzzDocument(f *testing.F) {
	f.Add(3.0, 2.0, 1e9)
	f.Add(-1.0, math.NaN(), math.Inf(1))
	f.Add(float64(1<<53), 0.5, float64(1<<63))
	f.Fuzz(func(t *testing.T, seq, term, ttl float64) {
		d := Document[float64]{Format: Format, Epoch: "e", Version: "v", Seq: seq, Term: term, TTL: ttl}
		if r, err := d.Record(); err == nil {
			require.Equal(t, []float64{seq, term, ttl}, []float64{float64(r.Seq), float64(r.Term), float64(r.TTL)})
		} else {
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		}
	})
}
