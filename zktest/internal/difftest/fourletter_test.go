package difftest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestCompare_FourLetterPropertiesAreEqual checks that the answers to conf and envi contain the same names of
// properties as the answers of a real server.
func TestCompare_FourLetterPropertiesAreEqual(t *testing.T) {
	real := startRealServer(t, time.Minute, nil).Addr(0)
	addr := zktest.Start(t).Addr()
	for _, w := range []string{"conf", "envi"} {
		a, b := propertyNames(sendFourLetter(real, w)), propertyNames(sendFourLetter(addr, w))
		assert.True(t, len(a) != 0 && slices.Equal(a, b), "%s\n  real   %q\n  zktest %q", w, a, b)
	}
	_, port, _ := strings.Cut(addr, ":")
	conf := sendFourLetter(addr, "conf")
	assert.True(t, strings.HasPrefix(conf, "clientPort="+port+"\n"), "port %s is not in\n%s", port, conf)
}

func propertyNames(answer string) (out []string) {
	for line := range strings.Lines(answer) {
		name, _, _ := strings.Cut(line, "=")
		out = append(out, name)
	}
	return out
}
