package replica

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestRecords_AreDecodedAsEncoded checks that decoding an encoded record returns the same record, and that a part
// of a record, or a record with a suffix, is rejected.
func TestRecords_AreDecodedAsEncoded(t *testing.T) {
	long := strings.Repeat("x", 3000) // longer than the strings that messages may contain
	for _, op := range []Op{
		{Do: Join, Election: "e", Candidate: "a/1", Name: "n", Peer: math.MaxUint64},
		{Do: Expire, Peer: 7, Through: 1 << 60},
		{Do: Window, Window: -time.Second},
		{Do: Move, Addr: long},
	} {
		data := op.Encode()
		got, err := DecodeOp(data)
		require.NoError(t, err)
		require.Equal(t, op, got)
		requireStrict(t, data, func(data []byte) error { _, err := DecodeOp(data); return err })
	}
	for _, c := range []Config{{Phase: Joint, Peers: []Peer{{"a", "h:1", math.MaxUint64}, {long, "", 0}}}, {Phase: Final}} {
		data := c.Encode()
		got, err := DecodeConfig(data)
		require.NoError(t, err)
		require.Equal(t, c, got)
		requireStrict(t, data, func(data []byte) error { _, err := DecodeConfig(data); return err })
	}
}

func requireStrict(t *testing.T, data []byte, decode func([]byte) error) {
	t.Helper()
	for n := range data {
		require.ErrorIs(t, decode(data[:n]), ErrMalformed)
	}
	require.ErrorIs(t, decode(append(data, 0)), ErrMalformed)
}

// TestRecords_ErrorNamesOtherVersion checks that the error for an unknown record says that another version of the
// program has written it. The examples include records in JSON, which the first versions wrote.
func TestRecords_ErrorNamesOtherVersion(t *testing.T) {
	for _, data := range []string{`{"do":"join"}`, "\x00", "\x0b"} {
		_, err := DecodeOp([]byte(data))
		require.ErrorIs(t, err, ErrMalformed)
		require.ErrorContains(t, err, "another version of this program has written it")
	}
	for _, data := range []string{`{"phase":"joint"}`, "\x00\x00", "\x06\x00"} {
		_, err := DecodeConfig([]byte(data))
		require.ErrorIs(t, err, ErrMalformed)
		require.ErrorContains(t, err, "another version of this program has written it")
	}
}

// TestText_ShowsRecordsAsJSON checks that Text returns records as JSON, so that commands can show them.
func TestText_ShowsRecordsAsJSON(t *testing.T) {
	control := Decoded{Header: Header{Kind: api.KindControl}, Data: Op{Do: End, Election: "e", Through: 3}.Encode()}
	require.JSONEq(t, `{"do": "end", "election": "e", "through": 3}`, string(control.Text()))
	config := Decoded{Header: Header{Kind: api.KindConfig}, Data: Config{Phase: Admit, Peers: []Peer{{"a", "h:1", 7}}}.Encode()}
	require.JSONEq(t, `{"phase": "admit", "peers": [{"id": "a", "addr": "h:1", "raft": 7}]}`, string(config.Text()))
	config.Data = []byte{200}
	require.Equal(t, config.Data, config.Text())
	require.Equal(t, "x", string(Decoded{Data: []byte("x")}.Text()))
}
