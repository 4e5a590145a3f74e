package difftest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWords compares the names of what conf and envi report.
func TestWords(t *testing.T) {
	real := realServer(t, time.Minute, nil).Addr(0)
	addr := zktest.Start(t).Addr()
	for _, w := range []string{"conf", "envi"} {
		a, b := names(word(real, w)), names(word(addr, w))
		if len(a) == 0 || !slices.Equal(a, b) {
			t.Errorf("%s\n  real   %q\n  zktest %q", w, a, b)
		}
	}
	_, port, _ := strings.Cut(addr, ":")
	if conf := word(addr, "conf"); !strings.HasPrefix(conf, "clientPort="+port+"\n") {
		t.Errorf("port %s is not in\n%s", port, conf)
	}
}

func names(answer string) (out []string) {
	for line := range strings.Lines(answer) {
		name, _, _ := strings.Cut(line, "=")
		out = append(out, name)
	}
	return out
}
