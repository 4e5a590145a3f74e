// Command replay replays the steps of contenders that tests have written to a directory: see
// package trace.
//
//	go run ./internal/zk/contender/trace/replay DIR
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender/trace"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: replay DIR")
		os.Exit(2)
	}
	if err := replay(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

// replay replays the files in a directory, and prints how much each contains.
func replay(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*"+trace.Extension))
	if err != nil {
		return err
	}
	var total trace.Count
	for _, name := range names {
		count, err := replayFile(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%s: %v\n", name, count)
		total.Add(count)
	}
	fmt.Printf("%v were replayed without a difference\n", total)
	return nil
}

func replayFile(name string) (trace.Count, error) {
	file, err := os.Open(name)
	if err != nil {
		return trace.Count{}, err
	}
	defer file.Close()
	return trace.ReplayFile(file)
}
