package trace

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
)

// DirVariable is an environment variable: the directory to which Tests writes the steps, which must
// exist.
const DirVariable = "LEADERELECTION_TRACE"

// Extension is that of the names of the files.
const Extension = ".steps"

// Tests runs tests, records all contenders of the process, and fails if an output
// differs in the replay. It records nothing during benchmarks.
type Tests struct{ M interface{ Run() int } }

// Run runs the tests and returns the exit code.
func (t Tests) Run() (code int) {
	if !flag.Parsed() {
		flag.Parse()
	}
	if flag.Lookup("test.bench").Value.String() != "" {
		return t.M.Run()
	}
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "trace:", err)
		code = max(code, 1)
	}
	recorder := NewRecorder(nil)
	if dir := os.Getenv(DirVariable); dir != "" {
		file, err := os.CreateTemp(dir, filepath.Base(os.Args[0])+"-*"+Extension)
		if err != nil {
			fail(err)
			return code
		}
		defer func() {
			if err := file.Close(); err != nil {
				fail(err)
			}
		}()
		recorder = NewRecorder(file)
	}
	queue.Record = recorder.Contender
	code = t.M.Run()
	count, err := recorder.Finish()
	if err != nil {
		fail(err)
	} else {
		fmt.Printf("trace: %v were replayed without a difference\n", count)
	}
	return code
}
