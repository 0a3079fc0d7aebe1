// Command images makes the images of other projects that docker-compose.yml names, and imports them into Docker under these names: for
// machines that reach no registry. Temporal's server, tools and UI are built from the modules that Converge uses, and put together as the
// Dockerfiles of Temporal do. PostgreSQL is the one of Debian, with an entry point that reads the same variables. A shell comes from
// Debian's busybox-static.
//
//	go run ./tests/compose/images
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/tests/cluster/lab"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// makers fill the root directory of an image, by the name of its repository, and return the changes that docker import makes to it.
var makers = map[string]func(root string) (changes []string, err error){
	"temporalio/server": server, "temporalio/admin-tools": tools, "temporalio/ui": ui, "postgres": postgres,
}

func run(ctx context.Context) error {
	file, err := os.ReadFile("docker-compose.yml")
	if err != nil {
		return err
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^ +image: ([\w/.-]+:[\w.-]+)$`).FindAllStringSubmatch(string(file), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		repository, _, _ := strings.Cut(name, ":")
		maker := makers[repository]
		if maker == nil {
			return fmt.Errorf("docker-compose.yml has the image %s; expected one of %s", name, strings.Join(slices.Sorted(maps.Keys(makers)), ", "))
		}
		if err := importImage(ctx, name, maker); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func importImage(ctx context.Context, name string, fill func(root string) ([]string, error)) error {
	root, err := os.MkdirTemp("", "converge-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := os.Chmod(root, 0o755); err != nil { //nolint:gosec // the root directory of an image
		return err
	}
	changes, err := fill(root)
	if err != nil {
		return err
	}
	tar := exec.CommandContext(ctx, "tar", "--numeric-owner", "-C", root, "-c", ".")
	args := []string{"import"}
	for _, change := range changes {
		args = append(args, "--change", change)
	}
	docker := exec.CommandContext(ctx, "docker", append(args, "-", name)...)
	pipe, err := tar.StdoutPipe()
	if err != nil {
		return err
	}
	docker.Stdin = pipe
	docker.Stdout, docker.Stderr, tar.Stderr = os.Stdout, os.Stderr, os.Stderr
	if err := tar.Start(); err != nil {
		return err
	}
	return errors.Join(docker.Run(), tar.Wait())
}

// server is Temporal's server.Dockerfile.
func server(root string) ([]string, error) {
	module, err := moduleDir("go.temporal.io/server")
	if err != nil {
		return nil, err
	}
	err = errors.Join(shell(root),
		build(root, modules, "go.temporal.io/server/cmd/server", "temporal-server"),
		install(root, filepath.Join(module, "docker", "scripts", "sh", "entrypoint.sh"), "etc/temporal/entrypoint.sh"),
	)
	return []string{"WORKDIR /etc/temporal", "USER 1000", `CMD ["/etc/temporal/entrypoint.sh"]`}, err
}

// tools is Temporal's admin-tools.Dockerfile, as far as docker-compose.yml needs it.
func tools(root string) ([]string, error) {
	module, err := moduleDir("go.temporal.io/server")
	if err != nil {
		return nil, err
	}
	err = errors.Join(shell(root),
		build(root, modules, "go.temporal.io/server/cmd/tools/sql", "temporal-sql-tool"),
		build(root, filepath.Join("tests", "temporalcli"), "github.com/temporalio/cli/cmd/temporal", "temporal"),
		copyTree(root, filepath.Join(module, "schema"), "etc/temporal/schema"),
	)
	return []string{"USER 1000", `CMD ["sleep", "infinity"]`}, err
}

// ui is the Dockerfile of Temporal's UI: the server, with its configuration for containers.
func ui(root string) ([]string, error) {
	module, err := moduleDir("github.com/temporalio/ui-server/v2")
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		build(root, modules, "github.com/temporalio/ui-server/v2/cmd/server", "ui-server"),
		install(root, filepath.Join(module, "config", "docker.yaml"), "home/ui-server/config/docker.yaml"),
	)
	return []string{"WORKDIR /home/ui-server", "USER 1000", `CMD ["/usr/local/bin/ui-server", "--env", "docker", "start"]`}, err
}

// entryPoint does what the entry point of the image postgres does with POSTGRES_USER and POSTGRES_PASSWORD. The real one accepts
// connections by its socket only while it initializes; this one accepts none.
const entryPoint = `#!/bin/sh
set -eu
export PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data LC_ALL=C
if [ "$(id -u)" = 0 ]; then
	mkdir -p "$PGDATA" /run/postgresql
	chown -R 999 "$PGDATA" /run/postgresql
	chmod 700 "$PGDATA"
	exec su postgres -s /bin/sh -c "$0"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
	printf %s "$POSTGRES_PASSWORD" >/tmp/password
	initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-host=scram-sha-256 --auth-local=trust --encoding=UTF8
	echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
	printf 'create database "%s"' "$POSTGRES_USER" | postgres --single postgres
fi
exec postgres -c listen_addresses='*' -c unix_socket_directories=/run/postgresql
`

func postgres(root string) ([]string, error) {
	bin, err := lab.Installed()
	if err != nil {
		return nil, err
	}
	version := filepath.Dir(bin)
	share := strings.Replace(version, "/usr/lib/", "/usr/share/", 1)
	err = errors.Join(shell(root), copyTree(root, version, version), copyTree(root, share, share),
		copyTree(root, "/usr/share/zoneinfo", "/usr/share/zoneinfo"), libraries(root, version))
	script := strings.ReplaceAll(entryPoint, "/usr/lib/postgresql/15", version)
	err = errors.Join(err,
		write(root, "usr/local/bin/docker-entrypoint.sh", script, 0o755),
		os.Symlink(filepath.Join(version, "bin", "pg_isready"), filepath.Join(root, "usr/local/bin/pg_isready")),
	)
	return []string{"VOLUME /var/lib/postgresql/data", `ENTRYPOINT ["/usr/local/bin/docker-entrypoint.sh"]`}, err
}

// libraries copies the shared libraries of all programs and modules of a PostgreSQL, and of what resolves users.
func libraries(root, version string) error {
	var elves []string
	err := filepath.WalkDir(version, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && (filepath.Base(filepath.Dir(path)) == "bin" || strings.HasSuffix(path, ".so")) {
			elves = append(elves, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	out, err := exec.Command("ldd", elves...).Output() // fails for scripts
	if err != nil && len(out) == 0 {
		return fmt.Errorf("ldd: %w", err)
	}
	done := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		for _, field := range strings.Fields(lines.Text()) {
			if !strings.HasPrefix(field, "/") || strings.HasSuffix(field, ":") || done[field] {
				continue
			}
			done[field] = true
			if err := install(root, field, field); err != nil {
				return err
			}
		}
	}
	return nil
}

// shell installs busybox, its commands, the users of the images, and getent, as far as the entry point of Temporal's server needs that.
func shell(root string) error {
	const busybox = "/bin/busybox"
	if err := install(root, busybox, "bin/busybox"); err != nil {
		return fmt.Errorf("%w: install busybox-static", err)
	}
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return err
	}
	for applet := range strings.FieldsSeq(string(list)) {
		if applet == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			return err
		}
	}
	return errors.Join(os.MkdirAll(filepath.Join(root, "tmp"), 0o755), os.Chmod(filepath.Join(root, "tmp"), 0o777|fs.ModeSticky), //nolint:gosec // as in every image
		write(root, "etc/passwd", "root:x:0:0:root:/:/bin/sh\ntemporal:x:1000:1000::/:/bin/sh\npostgres:x:999:999::/var/lib/postgresql:/bin/sh\n", 0o644),
		write(root, "etc/group", "root:x:0:\ntemporal:x:1000:\npostgres:x:999:\n", 0o644),
		write(root, "usr/local/bin/getent", "#!/bin/sh\nexec awk -v name=\"$2\" '$2 == name' /etc/hosts\n", 0o755))
}

// modules has the modules of Temporal's server.
var modules = filepath.Join("tests", "compose", "temporal")

// build builds a program with the modules of a directory.
func build(root, modules, of, program string) error {
	cmd := exec.Command("go", "-C", modules, "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(root, "usr/local/bin", program), of)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

func moduleDir(module string) (string, error) {
	out, err := exec.Command("go", "-C", modules, "list", "-m", "-f", "{{.Dir}}", module).Output()
	return strings.TrimSpace(string(out)), err
}

func write(root, name, content string, mode fs.FileMode) error {
	to := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // of an image
		return err
	}
	return errors.Join(os.WriteFile(to, []byte(content), mode), os.Chmod(to, mode)) //nolint:gosec // of an image
}

// install copies a file, which everybody may then read and run.
func install(root, from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return write(root, to, string(content), 0o755)
}

// copyTree copies a directory with the links in it.
func copyTree(root, from, to string) error {
	target := filepath.Join(root, to)
	if err := os.MkdirAll(target, 0o755); err != nil { //nolint:gosec // of an image
		return err
	}
	if out, err := exec.Command("cp", "-RL", from+"/.", target).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	out, err := exec.Command("chmod", "-R", "u+w,a+rX", target).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}
