"""Runs PTX kernels with numpy: all threads of some blocks side by side, one lane each, the lowest instruction first. A
Fault is raised for what is undefined on a device: memory that nobody allocated, misaligned addresses, barriers that
only part of a block reaches, asynchronous copies that nobody waits for, and shared memory that two warps use without a
barrier in between, at least one of them writing."""

import re

import numpy as np

END = 1 << 30
WARP = 32

UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
FLOAT = {32: np.float32, 64: np.float64}


class Fault(Exception):
    """An error of a kernel, or something that this interpreter does not know."""


def numpy_type(name):
    """The numpy type of u32, s64, b16, f32 and so on."""
    if name == "pred":
        return np.bool_
    return {"f": FLOAT, "s": SIGNED}.get(name[0], UNSIGNED)[int(name[1:])]


def to_bfloat16(values):
    """Bits of the nearest bfloat16, ties to even."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def from_bfloat16(bits):
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def fused(a, b, c):
    """a * b + c, rounded once, unless the sum in double lies half way between two floats."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


def split_operands(text):
    """Splits operands, each of which may have commas in braces or brackets."""
    return [part.strip() for part in re.findall(r"(?:[^,{\[]|\{[^}]*\}|\[[^\]]*\])+", text)]


class Kernel:
    """An entry of a PTX text: the places of its parameters, its instructions and labels."""

    def __init__(self, name, parameters, body):
        self.name = name
        self.symbols = {}  # addresses of parameters and static shared memory, each within its space
        self.parameters = []  # offset and bytes
        end = 0
        for text in split_operands(parameters):
            # drop what a pointer points to
            text = re.sub(r"\s*\.ptr(\s+\.(global|const|shared|local))?(\s+\.align\s+\d+)?", "", text)
            kind, found, count = re.search(r"\.(\w+)\s+(\w+)(?:\[(\d+)\])?$", text).groups()
            size = int(kind[1:]) // 8
            align = int((re.search(r"\.align (\d+)", text) or [0, size])[1])
            first = -(-end // align) * align
            self.symbols[found] = first
            self.parameters.append((first, size * int(count or 1)))
            end = first + self.parameters[-1][1]
        self.widths = {}
        self.labels = {}
        self.static_bytes = 0
        self.texts = []
        body = re.sub(r"(^|[;:}])\s*\{", r"\1 ", body)  # names are unique across scopes
        while re.search(r";\s*\}", body):
            body = re.sub(r";\s*\}", "; ", body)
        for statement in re.findall(r"\$\w+:|[^;:]+;", body):
            text = " ".join(statement.rstrip(";").split())
            if text.endswith(":"):
                self.labels[text[:-1]] = len(self.texts)
            elif text.startswith(".reg"):
                kind, prefix = re.match(r"\.reg \.(\w+) %?(\w+)", text).groups()
                self.widths[prefix] = 1 if kind == "pred" else int(kind[1:])
            elif text.startswith(".shared"):
                align, found, size = re.match(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d+)\]", text).groups()
                self.symbols[found] = -(-self.static_bytes // int(align)) * int(align)
                self.static_bytes = self.symbols[found] + int(size)
            elif text.startswith(".local"):
                raise Fault("local memory: " + text)
            elif text and not text.startswith("."):
                self.texts.append(text)
        self.static_bytes = -(-self.static_bytes // 128) * 128
        self.symbols["dynamic"] = self.static_bytes
        self.code = None

    def decoded(self):
        """The instructions, ready to run."""
        if self.code is None:
            self.code = [Instruction(self, text) for text in self.texts]
        return self.code

    def loops(self):
        """The instructions of every loop: from a label to the last branch back to it."""
        for at, text in enumerate(self.texts):
            branch = re.search(r"\bbra(?:\.uni)? (\$\w+)", text)
            if branch and self.labels[branch[1]] <= at:
                yield self.texts[self.labels[branch[1]] : at + 1]


def kernels_of(text):
    """The kernels of a PTX text, by name."""
    text = re.sub(r"//[^\n]*", "", text)
    for symbol in re.findall(r"\.extern \.shared \.align \d+ \.b8 (\w+)\[\]", text):
        text = re.sub(r"\b%s\b" % symbol, "dynamic", text)
    found = {}
    for entry in re.finditer(r"\.entry\s+(\w+)\s*\(([^)]*)\)[^{]*\{", text):
        end = entry.end()
        depth = 1
        for brace in re.compile(r"[{}]").finditer(text, end):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                end = brace.start()
                break
        found[entry[1]] = Kernel(entry[1], entry[2], text[entry.end() : end])
    return found


def integer_division(a, b):
    """Rounds toward zero; any result for a divisor of 0."""
    b = np.where(b == 0, np.ones_like(b), b)
    quotient = a // b
    return np.where((a % b != 0) & ((a < 0) != (b < 0)), quotient + 1, quotient).astype(a.dtype)


def shift(operation, signed):
    def run(value, by):
        width = value.dtype.itemsize * 8
        small = np.minimum(by, width - 1).astype(value.dtype)
        if operation == "shl":
            return np.where(by < width, value << small, value.dtype.type(0))
        return value >> small if signed else np.where(by < width, value >> small, value.dtype.type(0))

    return run


def high_product(a, b):
    wide = np.int64 if a.dtype.kind == "i" else np.uint64
    return ((a.astype(wide) * b.astype(wide)) >> wide(32)).astype(a.dtype)


def insert_bits(value, into, first, count):
    one = np.uint64(1)
    mask = ((one << count.astype(np.uint64)) - one) << first.astype(np.uint64)
    return ((into & ~mask) | ((value << first.astype(np.uint64)) & mask)).astype(into.dtype)


COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
           "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.bitwise_not}
OF_FLOATS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.fmax, "min": np.fmin,
             "neg": np.negative, "abs": np.abs, "fma": fused, "mad": fused, "sqrt": np.sqrt,
             "rsqrt": lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(np.float32),
             "rcp": np.reciprocal, "ex2": np.exp2, "lg2": np.log2}
OF_INTEGERS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
               "neg": np.negative, "abs": np.abs, "mad": lambda a, b, c: a * b + c, "div": integer_division,
               "rem": lambda a, b: a - integer_division(a, b) * b, "bfi": insert_bits}


class Instruction:
    """One instruction: `run(machine, lanes)` changes registers and memory of the lanes: a mask, or None for all."""

    def __init__(self, kernel, text):
        self.text = text
        self.kernel = kernel
        guard, operation, operands = re.match(r"(?:@(!?%\w+) )?(\S+)\s*(.*)", text).groups()
        self.guard = guard and guard.lstrip("!")
        self.unless = bool(guard) and guard.startswith("!")
        self.parts = operation.split(".")
        self.name = self.parts[0]
        self.operands = split_operands(operands)
        self.run = None
        self.target = END
        self.gathers = None  # synchronizes a warp or a block
        if self.parts[:2] == ["bar", "sync"]:
            self.gathers = "block"
        elif self.name in ("bar", "shfl", "ldmatrix", "mma"):
            self.gathers = "warp"
        if self.name == "bra":
            self.target = kernel.labels[self.operands[0]]
        elif self.name not in ("ret", "exit"):
            maker = getattr(self, "make_" + self.name, None)
            self.run = maker() if maker else self.make_plain()

    def fail(self):
        raise Fault(f"{self.kernel.name}: not known: {self.text}")

    def type_of(self, register):
        width = self.kernel.widths[re.match(r"%([a-z]+)", register)[1]]
        return np.bool_ if width == 1 else UNSIGNED[width]

    def reader(self, operand, type_name):
        """A function that returns the operand's values as that type, one per lane."""
        wanted = numpy_type(type_name)
        if operand.startswith("{"):  # narrow values side by side, the lowest first
            parts = split_operands(operand[1:-1])
            narrow = UNSIGNED[wanted().itemsize * 8 // len(parts)]
            readers = [self.reader(part, "u%d" % (narrow().itemsize * 8)) for part in parts]
            return lambda m: np.stack([np.broadcast_to(r(m), m.shape) for r in readers], 1).view(wanted)[:, 0]
        if operand.startswith("%"):
            if wanted is np.bool_:
                return lambda m: m.registers[operand]
            narrow = UNSIGNED[wanted().itemsize * 8]

            def read(m):
                value = m.registers[operand]
                return (value if value.dtype == narrow else value.astype(narrow)).view(wanted)

            return read
        if operand in self.kernel.symbols:
            value = wanted(self.kernel.symbols[operand])
        elif operand.startswith(("0f", "0d")):
            value = np.array(int(operand[2:], 16), UNSIGNED[wanted().itemsize * 8]).view(wanted)[()]
        else:
            bits = UNSIGNED[wanted().itemsize * 8]
            value = np.array(int(operand.rstrip("U"), 0) & np.iinfo(bits).max, bits).view(wanted)[()]
        return lambda m: np.full(m.shape, value)

    def writer(self, operand):
        """A function that writes values to the register of the given lanes."""
        if operand == "_":
            return lambda m, lanes, value: None
        if operand.startswith("{"):
            parts = [self.writer(part) for part in split_operands(operand[1:-1])]

            def write_parts(m, lanes, value):
                narrow = np.ascontiguousarray(value).view(UNSIGNED[value.dtype.itemsize * 8 // len(parts)])
                for i, part in enumerate(parts):
                    part(m, lanes, np.ascontiguousarray(narrow.reshape(len(value), -1)[:, i]))

            return write_parts
        wanted = self.type_of(operand)

        def write(m, lanes, value):
            if wanted is not np.bool_:
                if value.dtype.kind == "i" and value.dtype.itemsize < wanted().itemsize:
                    value = value.astype(SIGNED[wanted().itemsize * 8])
                if value.dtype.kind != "u":
                    value = value.view(UNSIGNED[value.dtype.itemsize * 8])
                if value.dtype != wanted:
                    value = value.astype(wanted)
            m.registers[operand] = value if lanes is None else np.where(lanes, value, m.registers[operand])

        return write

    def address(self, operand):
        """A function that returns the address in brackets."""
        base, offset = re.match(r"\[([%\w$]+)(?:\+(-?\d+))?\]$", operand).groups()
        read = self.reader(base, "s64")
        if base.startswith("%") and self.type_of(base) is np.uint32:
            narrow = self.reader(base, "u32")
            read = lambda m: narrow(m).astype(np.int64)
        return lambda m: read(m) + int(offset or 0)

    def make_plain(self):
        """Arithmetic: a function of values of the type that the instruction ends with."""
        name, parts, kind = self.name, self.parts, self.parts[-1]
        types = [kind] * 3
        if kind == "pred" or name in LOGIC:
            function = LOGIC.get(name) or self.fail()
        elif kind[0] == "f":
            function = OF_FLOATS.get(name) or self.fail()
            if "ftz" in parts:
                inner = function
                function = lambda x: np.where(np.abs(y := inner(x)) < 2.0**-126, np.float32(0), y)
        elif name in ("shl", "shr"):
            function = shift(name, kind[0] == "s")
            types[1] = "u32"
        elif "wide" in parts:
            wide = (SIGNED if kind[0] == "s" else UNSIGNED)[2 * int(kind[1:])]
            types[2] = kind[0] + str(2 * int(kind[1:]))
            function = lambda a, b, c=None: a.astype(wide) * b.astype(wide) + (wide(0) if c is None else c)
        elif "hi" in parts and kind[1:] == "32" and name == "mul":
            function = high_product
        elif name == "bfi":
            types = [kind, kind, "u32", "u32"]
            function = insert_bits
        else:
            function = OF_INTEGERS.get(name) or self.fail()
        readers = [self.reader(operand, type_name) for operand, type_name in zip(self.operands[1:], types)]
        write = self.writer(self.operands[0])
        return lambda m, lanes: write(m, lanes, function(*[read(m) for read in readers]))

    def make_mov(self):
        kind = self.parts[-1]
        read = self.reader(self.operands[1], kind)
        write = self.writer(self.operands[0])
        return lambda m, lanes: write(m, lanes, read(m))

    make_cvta = make_mov

    def make_setp(self):
        kind, name = self.parts[-1], self.parts[1]
        unordered = kind[0] == "f" and name in ("equ", "neu", "ltu", "leu", "gtu", "geu")
        compare = COMPARE.get(name[:2] if unordered else name) or self.fail()
        if len(self.parts) != 3 + ("ftz" in self.parts):
            self.fail()
        a, b = [self.reader(operand, kind) for operand in self.operands[1:]]
        write = self.writer(self.operands[0])

        def run(m, lanes):
            x, y = a(m), b(m)
            result = compare(x, y)
            if unordered:
                result = result | np.isnan(x) | np.isnan(y)
            elif kind[0] == "f" and name == "ne":
                result = result & ~np.isnan(x) & ~np.isnan(y)
            write(m, lanes, result)

        return run

    def make_selp(self):
        a, b = [self.reader(operand, self.parts[-1]) for operand in self.operands[1:3]]
        choose = self.reader(self.operands[3], "pred")
        write = self.writer(self.operands[0])
        return lambda m, lanes: write(m, lanes, np.where(choose(m), a(m), b(m)))

    def make_cvt(self):
        to, kind = self.parts[-2], self.parts[-1]
        write = self.writer(self.operands[0])
        if to == "bf16x2":
            high, low = [self.reader(operand, kind) for operand in self.operands[1:]]
            return lambda m, lanes: write(
                m, lanes, (to_bfloat16(high(m)).astype(np.uint32) << 16) | to_bfloat16(low(m)))
        read = self.reader(self.operands[1], kind)
        if to == "bf16":
            return lambda m, lanes: write(m, lanes, to_bfloat16(read(m)))
        if (to[0] == "f") < (kind[0] == "f") and self.parts[1] != "rzi":
            self.fail()
        wanted = numpy_type(to)
        return lambda m, lanes: write(m, lanes, read(m).astype(wanted))

    def vector(self):
        """The number of values per access, and their type."""
        count = [int(part[1]) for part in self.parts if part in ("v2", "v4")]
        return (count or [1])[0], self.parts[-1]

    def make_ld(self):
        count, kind = self.vector()
        wanted = numpy_type(kind)
        space = self.parts[1]
        at = self.address(self.operands[1])
        names = split_operands(self.operands[0][1:-1]) if count > 1 else [self.operands[0]]
        writers = [self.writer(name) for name in names]
        size = wanted().itemsize

        def run(m, lanes):
            values = m.read(space, at(m), lanes, size * count, self).view(wanted)
            for i, write in enumerate(writers):
                write(m, lanes, np.ascontiguousarray(values[:, i]))

        return run

    def make_st(self):
        count, kind = self.vector()
        space = self.parts[1]
        at = self.address(self.operands[0])
        names = split_operands(self.operands[1][1:-1]) if count > 1 else [self.operands[1]]
        readers = [self.reader(name, "u" + kind[1:]) for name in names]
        return lambda m, lanes: m.write(space, at(m), lanes, np.stack([read(m) for read in readers], 1), self)

    def make_shfl(self):
        target = self.operands[0].split("|")[0]
        if "bfly" not in self.parts:
            self.fail()
        by = self.reader(self.operands[2], "u32")
        read = self.reader(self.operands[1], "b32")
        write = self.writer(target)

        return lambda m, lanes: write(m, lanes, read(m)[np.arange(m.lanes) ^ by(m)])

    def make_bar(self):
        return lambda m, lanes: None

    def make_cp(self):
        if "wait_all" in self.parts:
            return lambda m, lanes: m.finish_copies(lanes, self)
        if self.parts[1] != "async" or len(self.operands) != 4:
            self.fail()
        to, source = [self.address(operand) for operand in self.operands[:2]]
        size = int(self.operands[2])
        present = self.reader(self.operands[3], "u32")
        return lambda m, lanes: m.begin_copy(to(m), source(m), size, present(m), lanes, self)

    def make_ldmatrix(self):
        if self.parts[-3:] != ["x4", "shared", "b16"] and "trans" not in self.parts:
            self.fail()
        at = self.address(self.operands[1])
        writers = [self.writer(name) for name in split_operands(self.operands[0][1:-1])]
        transposed = "trans" in self.parts

        def run(m, lanes):
            rows = m.read("shared", at(m), lanes, 16, self).reshape(-1, 4, 8, 16).view(np.uint16)
            if transposed:
                rows = np.ascontiguousarray(rows.transpose(0, 1, 3, 2))
            fragments = rows.view(np.uint32).reshape(-1, 4, WARP)  # row g, pair t of lane 4 g + t
            for i, write in enumerate(writers):
                write(m, lanes, np.ascontiguousarray(fragments[:, i]).reshape(-1))

        return run

    def make_mma(self):
        """D [16][8] = A [16][16] B [16][8] + C, as their fragments lie in a warp's registers."""
        if self.parts[3:] != ["m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"]:
            self.fail()
        d, a, b, c = [split_operands(operand[1:-1]) for operand in self.operands]
        readers = [[self.reader(name, "u32") for name in names] for names in (a, b)]
        addends = [self.reader(name, "f32") for name in c]
        writers = [self.writer(name) for name in d]
        group, pair = np.divmod(np.arange(WARP), 4)

        def run(m, lanes):
            warps = m.lanes // WARP
            left, right = [[from_bfloat16(read(m).view(np.uint16)).reshape(warps, WARP, 2) for read in side]
                           for side in readers]
            rows = np.empty((warps, 16, 16), np.float32)
            for i, values in enumerate(left):
                for half in range(2):
                    rows[:, group + 8 * (i % 2), 2 * pair + 8 * (i // 2) + half] = values[:, :, half]
            columns = np.empty((warps, 16, 8), np.float32)
            for i, values in enumerate(right):
                for half in range(2):
                    columns[:, 2 * pair + 8 * i + half, group] = values[:, :, half]
            product = rows @ columns
            for i, (write, addend) in enumerate(zip(writers, addends)):
                write(m, lanes, product[:, group + 8 * (i // 2), 2 * pair + i % 2].reshape(-1) + addend(m))

        return run


class Registers(dict):
    """Values by register, one per lane; 0 before they are written."""

    def __init__(self, kernel, lanes):
        super().__init__()
        self.kernel = kernel
        self.lanes = lanes

    def __missing__(self, name):
        width = self.kernel.widths[re.match(r"%([a-z]+)", name)[1]]
        self[name] = np.zeros(self.lanes, np.bool_ if width == 1 else UNSIGNED[width])
        return self[name]


class Machine:
    """The threads of neighbouring blocks of a grid, and their shared memory. `memory` is global memory: its bytes, the
    address of the first, and for each byte whether it is allocated."""

    def __init__(self, kernel, grid, block, first_block, blocks, shared_bytes, parameters, memory):
        self.kernel = kernel
        self.threads = block[0] * block[1] * block[2]
        if self.threads % WARP or block[1] != 1 or block[2] != 1:
            raise Fault(f"{kernel.name}: blocks of {block} threads")
        self.blocks = blocks
        self.lanes = blocks * self.threads
        self.shape = (self.lanes,)
        self.parameters = parameters
        self.memory = memory
        self.shared_bytes = kernel.static_bytes + shared_bytes
        self.room = -(-(self.shared_bytes + 1) // 256) * 256
        self.shared = np.full(blocks * self.room, 0xFF, np.uint8)
        self.block_of = np.repeat(np.arange(blocks), self.threads)
        self.warp_of = np.tile(np.arange(self.threads) // WARP, blocks)
        # For every word of shared memory: phase (barriers passed, from 1 on) and warp of the last writer and the last
        # reader.
        self.word = 2 if any(re.search(r"(ld|st)\.shared\.[bsu]16", text) for text in kernel.texts) else 4
        self.phase = np.ones(blocks, np.int32)
        self.written = np.zeros((2, blocks * self.room // self.word), np.int32)
        self.used = np.zeros_like(self.written)
        self.copies = []
        self.registers = Registers(kernel, self.lanes)
        index = first_block + self.block_of
        special = {"%tid.x": np.tile(np.arange(self.threads), blocks), "%ctaid.x": index % grid[0],
                   "%ctaid.y": index // grid[0] % grid[1], "%ctaid.z": index // grid[0] // grid[1]}
        for i, axis in enumerate("xyz"):
            special["%ntid." + axis] = np.full(self.lanes, block[i])
            special["%nctaid." + axis] = np.full(self.lanes, grid[i])
        for name, values in special.items():
            self.registers[name] = values.astype(np.uint32)
        self.pc = np.zeros(self.lanes, np.int64)
        self.waits = np.zeros(self.lanes, bool)
        self.all = np.ones(self.lanes, bool)

    def fault(self, what, instruction):
        raise Fault(f"{self.kernel.name}: {what}: {instruction.text}")

    def run(self):
        code = self.kernel.decoded()
        while (at := int(np.where(self.waits, END, self.pc).min())) < len(code):
            lanes = self.pc == at
            limit = int(np.where(self.pc <= at, END, self.pc).min())
            count = np.count_nonzero(lanes)
            while at < limit:  # run these lanes until they reach an instruction where others are
                instruction = code[at]
                active = None if count == self.lanes else lanes
                taken = count
                if instruction.guard:
                    active = lanes & (self.registers[instruction.guard] ^ instruction.unless)
                    taken = np.count_nonzero(active)
                    active = None if taken == self.lanes else active
                at += 1
                if taken == 0:
                    continue
                if instruction.gathers and not self.together(active, instruction):
                    self.waits |= lanes
                    at -= 1
                    limit = at
                elif instruction.run:
                    instruction.run(self, active)
                elif taken == count:
                    at = instruction.target
                    if self.waits.any():  # waiting lanes may be there
                        limit = at
                else:
                    self.pc[lanes] = at
                    self.pc[active] = instruction.target
                    break
            else:
                self.pc[lanes] = at
        if self.waits.any():
            self.fault("threads wait for others of their warp or block", code[int(self.pc[self.waits][0])])
        if self.copies:
            raise Fault(f"{self.kernel.name}: copies that nobody waits for")

    def together(self, lanes, instruction):
        """Whether all threads of each warp or block are at this synchronizing instruction; otherwise the lanes wait."""
        if lanes is None:
            groups = slice(None)
            self.waits[:] = False
        else:
            size = self.threads if instruction.gathers == "block" else WARP
            groups = lanes.reshape(-1, size).any(1)
            present = lanes | (self.pc == END) if instruction.gathers == "block" else lanes
            if not present.reshape(-1, size)[groups].all():
                return False
            self.waits &= ~lanes
        if instruction.gathers == "block":
            self.phase[groups] += 1
        return True

    def places(self, space, address, lanes, size, instruction):
        """Indices of the lanes' accesses of that size within the space."""
        if lanes is not None:
            address = address[lanes]
        if (address % size).any():
            self.fault("not aligned", instruction)
        if space == "shared":
            if (address < 0).any() or (address + size > self.shared_bytes).any():
                self.fault("outside of shared memory", instruction)
            return (address + self.room * (self.block_of if lanes is None else self.block_of[lanes])) // size
        address = address - self.memory.first
        if (address < 0).any() or (address + size > len(self.memory.bytes)).any() or not (
            self.memory.allocated[address] & self.memory.allocated[address + size - 1]).all():
            self.fault("outside of what is allocated", instruction)
        return address // size

    def watch(self, at, lanes, size, writes, instruction):
        """Records uses of shared memory; two warps that use a word in one phase, one of them writing, are a race."""
        phase = self.phase[self.block_of]
        warp = self.warp_of
        if lanes is not None:
            phase, warp = phase[lanes], warp[lanes]
        words = at
        if size > self.word:
            words = at[:, None] * (size // self.word) + np.arange(size // self.word)
            phase, warp = phase[:, None], warp[:, None]
        for seen in (self.written, self.used) if writes else (self.written,):
            if ((seen[0][words] == phase) & (seen[1][words] != warp)).any():
                self.fault("a race", instruction)
        mine = self.written if writes else self.used
        if not writes:  # several readers: no single warp
            warp = np.where((mine[0][words] == phase) & (mine[1][words] != warp), -1, warp)
        mine[1][words] = warp
        mine[0][words] = phase

    def read(self, space, address, lanes, size, instruction):
        """Bytes [lanes][size]; inactive lanes get arbitrary values."""
        if space == "param":
            address = address if lanes is None else np.where(lanes, address, 0)
            return self.parameters[address[:, None] + np.arange(size)]
        at = self.places(space, address, lanes, size, instruction)
        if space == "shared":
            self.watch(at, lanes, size, False, instruction)
        found = (self.shared if space == "shared" else self.memory.bytes).reshape(-1, size)[at]
        if lanes is None:
            return found
        values = np.zeros((self.lanes, size), np.uint8)
        values[lanes] = found
        return values

    def write(self, space, address, lanes, values, instruction):
        values = np.ascontiguousarray(values).view(np.uint8)
        size = values.shape[1]
        at = self.places(space, address, lanes, size, instruction)
        if space == "shared":
            self.watch(at, lanes, size, True, instruction)
        buffer = self.shared if space == "shared" else self.memory.bytes
        buffer.reshape(-1, size)[at] = values if lanes is None else values[lanes]

    def begin_copy(self, to, source, size, present, lanes, instruction):
        lanes = self.all if lanes is None else lanes
        if not np.isin(present[lanes], (0, size)).all():
            self.fault("part of a copy", instruction)
        self.watch(self.places("shared", to, lanes, size, instruction), lanes, size, True, instruction)
        self.copies.append((lanes, to, source, size, present != 0, instruction))

    def finish_copies(self, lanes, instruction):
        lanes = self.all if lanes is None else lanes
        for of, to, source, size, present, begun in self.copies:
            if (of & ~lanes).any():
                self.fault("a wait of part of those who copy", instruction)
            values = self.read("global", source, of & present, size, begun)
            self.write("shared", to, of, values, begun)
        self.copies = []
