"""/proc/cpuinfo as several kinds of machines print it, without the lines that nobody reads."""

from __future__ import annotations

XEON = """\
processor	: 0
vendor_id	: GenuineIntel
cpu family	: 6
model		: 143
model name	: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
stepping	: 8
microcode	: 0x2b000603
cpu MHz		: 2700.000
physical id	: 0
siblings	: 4
core id		: 0
cpu cores	: 2
flags		: fpu vme de avx512f amx_tile
bugs		: spectre_v1 gds
power management:

processor	: 1
vendor_id	: GenuineIntel
cpu family	: 6
model		: 143
model name	: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
stepping	: 8
microcode	: 0x2b000603
power management:

"""

ZEN4 = """\
processor	: 0
vendor_id	: AuthenticAMD
cpu family	: 25
model		: 17
model name	: AMD EPYC 9R14
stepping	: 1
microcode	: 0xa101144
cpu MHz		: 3700.004
cache size	: 1024 KB
TLB size	: 3584 4K pages
power management: ts ttp

"""

HIDDEN = """\
processor	: 0
vendor_id	: GenuineIntel
cpu family	: 6
model		: 85
model name	: unknown
stepping	: unknown
flags		: fpu hypervisor

"""
"""A virtual machine that shows no microcode."""

NEOVERSE = """\
processor	: 0
BogoMIPS	: 243.75
Features	: fp asimd evtstrm aes sve
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x1
CPU part	: 0xd40
CPU revision	: 1

processor	: 1
BogoMIPS	: 243.75
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x1
CPU part	: 0xd40
CPU revision	: 1

"""

BIG_LITTLE = """\
processor	: 0
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x1
CPU part	: 0xd05
CPU revision	: 0

processor	: 4
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x4
CPU part	: 0xd0b
CPU revision	: 0

Hardware	: BCM2711
Serial		: 0123456789abcdef
"""
