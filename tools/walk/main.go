// Command walk counts the packages and the files of the library through which one candidate passes, from
// NewElection to the closed channel. It builds and runs a program with coverage:
//
//	go run ./walk
//
// Run it in the directory tools.
package main

import (
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/go-leaderelection/leaderelection"

// excluded are the packages of the server, the dialer and the program.
var excluded = regexp.MustCompile(`/(zktest|zkdial|internal/wire|internal/testenv|tools/walk)(/|$)`)

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "walk")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := walk(dir); err != nil {
		os.RemoveAll(dir)
		log.Fatal(err)
	}
}

func walk(dir string) error {
	program, data, profile := filepath.Join(dir, "candidate"), filepath.Join(dir, "data"), filepath.Join(dir, "profile")
	if err := os.Mkdir(data, 0o755); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"go", "build", "-cover", "-coverpkg=command-line-arguments," + module + "/...", "-o", program, "./tools/walk/candidate.go"},
		{program},
		{"go", "tool", "covdata", "textfmt", "-i=" + data, "-o=" + profile},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = ".." // the root of the repository
		cmd.Env = append(os.Environ(), "GOWORK=", "GOCOVERDIR="+data)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	files := map[string][]string{} // by package
	statements := 0
	for line := range strings.Lines(string(text)) {
		var file string
		var from, to string
		var n, count int
		name, rest, _ := strings.Cut(line, ":")
		if file = name; excluded.MatchString(path.Dir(file)) {
			continue
		}
		if _, err := fmt.Sscanf(strings.Replace(rest, ",", " ", 1), "%s %s %d %d", &from, &to, &n, &count); err != nil || count == 0 {
			continue
		}
		statements += n
		if p := path.Dir(file); !slices.Contains(files[p], path.Base(file)) {
			files[p] = append(files[p], path.Base(file))
		}
	}
	total := 0
	for _, p := range slices.Sorted(maps.Keys(files)) {
		slices.Sort(files[p])
		total += len(files[p])
		fmt.Printf("%-40s %s\n", "."+strings.TrimPrefix(p, module), strings.Join(files[p], " "))
	}
	fmt.Printf("%d packages, %d files, %d statements\n", len(files), total, statements)
	return nil
}
