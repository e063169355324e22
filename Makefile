# The short ways in; CMakePresets.json has the rest.

.PHONY: all setup demo test format lint clean

all:
	@tools/build.sh

setup:
	@tools/setup.sh

demo: setup all
	@tools/demo.sh

test: setup all
	@tools/test.sh

format: setup
	@tools/format.sh

lint: setup
	@tools/lint.sh

clean:
	rm -rf build build-*
