package zktest_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestFourLetter_WaitsForEndOfFault checks that a server answers a four-letter word only when a black
// hole or a pause is over.
func TestFourLetter_WaitsForEndOfFault(t *testing.T) {
	for name, fault := range map[string]struct{ begin, end func(*zktest.Server) }{
		"black hole": {func(s *zktest.Server) { s.Blackhole(zktest.ToServer) }, func(s *zktest.Server) { s.Heal() }},
		"pause":      {(*zktest.Server).Pause, (*zktest.Server).Resume},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t)
			fault.begin(s)
			nc, err := s.Dialer()("", "", 0)
			require.NoError(t, err)
			defer nc.Close()
			_, err = nc.Write([]byte("ruok"))
			require.NoError(t, err)
			// Less than 10 s, after which the server closes the connection.
			nc.SetReadDeadline(time.Now().Add(9 * time.Second))
			if n, err := nc.Read(make([]byte, 8)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: received %d bytes during the fault, error %v", name, n, err)
			}
			fault.end(s)
			nc.SetReadDeadline(time.Now().Add(time.Minute))
			if b, err := io.ReadAll(nc); string(b) != "imok" || err != nil {
				t.Errorf("%s: received %q after the fault, error %v", name, b, err)
			}
		})
	}
}

// TestFourLetter_ConfContainsPort checks that the answer to conf contains the port, because some tools read it
// there.
func TestFourLetter_ConfContainsPort(t *testing.T) {
	ens := zktest.StartEnsemble(t, 2)
	for i, addr := range ens.Addrs() {
		nc, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer nc.Close()
		_, err = nc.Write([]byte("conf"))
		require.NoError(t, err)
		answer, err := io.ReadAll(nc)
		require.NoError(t, err)
		_, port, _ := net.SplitHostPort(addr)
		require.Contains(t, string(answer), "clientPort="+port+"\n")
		require.Contains(t, string(answer), fmt.Sprintf("\nserverId=%d\n", i+1))
		require.Contains(t, string(answer), ";"+addr+"\n")
	}
}
